#!/bin/bash
# The entrypoint of the pipeline's image. Spark on Kubernetes gives `driver …` or `executor` to the entrypoint of an image, and
# says the rest in variables; the names are those of Spark's own images, whose script PySpark does not bring. All else is
# a command of the pipeline.
set -eu

case ${1:-} in
driver)
    shift
    exec "$SPARK_HOME/bin/spark-submit" --deploy-mode client \
        --conf "spark.driver.bindAddress=$SPARK_DRIVER_BIND_ADDRESS" \
        --conf "spark.executorEnv.SPARK_DRIVER_POD_IP=$SPARK_DRIVER_BIND_ADDRESS" "$@"
    ;;
executor)
    options=()
    while name=SPARK_JAVA_OPT_${#options[@]} && [[ -v $name ]]; do options+=("${!name}"); done
    places=(${HADOOP_CONF_DIR:+"$HADOOP_CONF_DIR"} "${SPARK_CONF_DIR:-$SPARK_HOME/conf}"
        ${SPARK_CLASSPATH:+"$SPARK_CLASSPATH"} "$SPARK_HOME/jars/*" "$PWD")
    exec "$JAVA_HOME/bin/java" "${options[@]}" -Xms"$SPARK_EXECUTOR_MEMORY" -Xmx"$SPARK_EXECUTOR_MEMORY" \
        -cp "$(IFS=:; echo "${places[*]}")" org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
        --driver-url "$SPARK_DRIVER_URL" --app-id "$SPARK_APPLICATION_ID" --executor-id "$SPARK_EXECUTOR_ID" \
        --cores "$SPARK_EXECUTOR_CORES" --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" \
        --hostname "$SPARK_EXECUTOR_POD_IP" --podName "$SPARK_EXECUTOR_POD_NAME"
    ;;
esac
exec pulsar-ingress-pipeline "$@"
