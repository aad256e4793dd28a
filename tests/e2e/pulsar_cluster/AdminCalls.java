import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.Callable;
import org.apache.pulsar.client.admin.LongRunningProcessStatus;
import org.apache.pulsar.client.admin.PulsarAdmin;
import org.apache.pulsar.client.admin.PulsarAdminException;
import org.apache.pulsar.client.api.AuthenticationFactory;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.common.policies.data.AuthAction;
import org.apache.pulsar.common.policies.data.BacklogQuota;
import org.apache.pulsar.common.policies.data.DispatchRate;
import org.apache.pulsar.common.policies.data.PersistencePolicies;
import org.apache.pulsar.common.policies.data.PublishRate;
import org.apache.pulsar.common.policies.data.ResourceGroup;
import org.apache.pulsar.common.policies.data.RetentionPolicies;
import org.apache.pulsar.common.policies.data.TenantInfo;
import org.apache.pulsar.common.util.ObjectMapperFactory;

/**
 * Pulsar's own admin client: java -cp … AdminCalls.java URL NAMESPACE TOKEN, about a topic `orders` of that namespace,
 * which is there and has a subscription `kept` and one message.
 *
 * <p>It makes every call in turn, whatever becomes of the others, and prints a line for each: interface, method, and
 * what came of it, with tabs between.
 */
public class AdminCalls {
    interface Action {
        void run() throws Exception;
    }

    static void call(String where, String method, Callable<Object> work) {
        String came;
        try {
            came = ObjectMapperFactory.getMapper().writer().writeValueAsString(work.call());
        } catch (PulsarAdminException failure) {
            came = failure.getClass().getSimpleName() + " " + failure.getStatusCode();
        } catch (Exception failure) {
            came = failure.getClass().getSimpleName();
        }
        System.out.println("call\t" + where + "\t" + method + "\t" + came.replace("\n", " "));
    }

    static void call(String where, String method, Action work) {
        call(where, method, () -> {
            work.run();
            return "done";
        });
    }

    public static void main(String[] arguments) throws Exception {
        String namespace = arguments[1];
        String topic = "persistent://" + namespace + "/orders";
        String wide = "persistent://" + namespace + "/wide";
        String unique = namespace.substring(namespace.indexOf('/') + 1);
        String bundle = "0x00000000_0xffffffff";
        PulsarAdmin admin = PulsarAdmin.builder().serviceHttpUrl(arguments[0])
                .authentication(AuthenticationFactory.token(arguments[2])).build();
        String broker = admin.brokers().getLeaderBroker().getBrokerId();

        var topics = admin.topics();
        call("Topics", "createNonPartitionedTopic", () -> topics.createNonPartitionedTopic(topic + "-new"));
        call("Topics", "createPartitionedTopic", () -> topics.createPartitionedTopic(wide, 2));
        call("Topics", "updatePartitionedTopic", () -> topics.updatePartitionedTopic(wide, 3));
        call("Topics", "createMissedPartitions", () -> topics.createMissedPartitions(wide));
        call("Lookup", "getBundleRange", () -> admin.lookups().getBundleRange(topic));
        call("Lookup", "lookupPartitionedTopic", () -> admin.lookups().lookupPartitionedTopic(wide).size());
        call("Topics", "getPartitionedTopicMetadata", () -> topics.getPartitionedTopicMetadata(wide).partitions);
        call("Topics", "getPartitionedTopicList", () -> topics.getPartitionedTopicList(namespace));
        call("Topics", "getList", () -> topics.getList(namespace).stream().sorted().toList());
        call("Topics", "getListInBundle", () -> topics.getListInBundle(namespace, bundle));
        call("Topics", "getPartitionedStats", () -> topics.getPartitionedStats(wide, false).getMetadata().partitions);
        call("Topics", "getPartitionedInternalStats",
                () -> topics.getPartitionedInternalStats(wide).partitions.size());
        call("Topics", "createSubscription", () -> topics.createSubscription(topic, "new", MessageId.earliest));
        call("Topics", "getSubscriptions", () -> topics.getSubscriptions(topic).stream().sorted().toList());
        call("Topics", "updateSubscriptionProperties",
                () -> topics.updateSubscriptionProperties(topic, "new", Map.of("a", "b")));
        call("Topics", "getSubscriptionProperties", () -> topics.getSubscriptionProperties(topic, "new"));
        call("Topics", "getStats",
                () -> topics.getStats(topic).getSubscriptions().keySet().stream().sorted().toList());
        call("Topics", "getInternalStats", () -> topics.getInternalStats(topic).numberOfEntries);
        call("Topics", "getInternalInfo", () -> topics.getInternalInfo(topic).contains("ledgerId"));
        call("Topics", "peekMessages", () -> topics.peekMessages(topic, "kept", 1).stream()
                .map(message -> new String(message.getData())).toList());
        call("Topics", "getLastMessageId", () -> topics.getLastMessageId(topic).toString());
        call("Topics", "getMessageIdByTimestamp", () -> topics.getMessageIdByTimestamp(topic, 0).toString());
        call("Topics", "analyzeSubscriptionBacklog",
                () -> topics.analyzeSubscriptionBacklog(topic, "kept", Optional.empty()).getMessages());
        call("Topics", "getBacklogSizeByMessageId",
                () -> topics.getBacklogSizeByMessageId(topic, MessageId.earliest));
        call("Topics", "expireMessages", () -> topics.expireMessages(topic, "kept", 3600));
        // Not of the same topic: a broker refuses with 409 while it is still expiring messages of the subscription.
        call("Topics", "expireMessagesForAllSubscriptions",
                () -> topics.expireMessagesForAllSubscriptions(topic + "-new", 3600));
        call("Topics", "resetCursor", () -> topics.resetCursor(topic, "kept", MessageId.earliest));
        call("Topics", "skipMessages", () -> topics.skipMessages(topic, "new", 1));
        call("Topics", "skipAllMessages", () -> topics.skipAllMessages(topic, "kept"));
        call("Topics", "deleteSubscription", () -> topics.deleteSubscription(topic, "new"));
        call("Topics", "updateProperties", () -> topics.updateProperties(topic, Map.of("a", "b")));
        call("Topics", "getProperties", () -> topics.getProperties(topic));
        call("Topics", "removeProperties", () -> topics.removeProperties(topic, "a"));
        call("Topics", "grantPermission", () -> topics.grantPermission(topic, "guest", Set.of(AuthAction.consume)));
        call("Topics", "getPermissions", () -> topics.getPermissions(topic).get("guest"));
        call("Topics", "revokePermissions", () -> topics.revokePermissions(topic, "guest"));
        call("Topics", "triggerCompaction", () -> topics.triggerCompaction(topic));
        call("Topics", "compactionStatus",
                () -> topics.compactionStatus(topic).status != LongRunningProcessStatus.Status.NOT_RUN);
        call("Topics", "offloadStatus", () -> topics.offloadStatus(topic).getStatus());
        call("Topics", "trimTopic", () -> topics.trimTopic(topic));
        call("Topics", "unload", () -> topics.unload(topic));
        call("Topics", "terminateTopic", () -> topics.terminateTopic(topic + "-new").toString());
        call("Topics", "delete", () -> topics.delete(topic + "-new", true));
        call("Topics", "deletePartitionedTopic", () -> topics.deletePartitionedTopic(wide, true));

        var policies = admin.topicPolicies();
        call("TopicPolicies", "setRetention", () -> policies.setRetention(topic, new RetentionPolicies(1, 1)));
        call("TopicPolicies", "getRetention", () -> policies.getRetention(topic));
        call("TopicPolicies", "removeRetention", () -> policies.removeRetention(topic));
        call("TopicPolicies", "setMessageTTL", () -> policies.setMessageTTL(topic, 60));
        call("TopicPolicies", "getMessageTTL", () -> policies.getMessageTTL(topic));
        call("TopicPolicies", "setMaxConsumers", () -> policies.setMaxConsumers(topic, 5));
        call("TopicPolicies", "getMaxConsumers", () -> policies.getMaxConsumers(topic));
        call("TopicPolicies", "setPublishRate", () -> policies.setPublishRate(topic, new PublishRate(100, 10000)));
        call("TopicPolicies", "getPublishRate", () -> policies.getPublishRate(topic));

        var schemas = admin.schemas();
        call("Schemas", "createSchema", () -> schemas.createSchema(topic, Schema.STRING.getSchemaInfo()));
        call("Schemas", "getSchemaInfo", () -> schemas.getSchemaInfo(topic).getType());
        call("Schemas", "getAllSchemas", () -> schemas.getAllSchemas(topic).size());
        call("Schemas", "getVersionBySchema",
                () -> schemas.getVersionBySchema(topic, Schema.STRING.getSchemaInfo()));
        call("Schemas", "testCompatibility",
                () -> schemas.testCompatibility(topic, Schema.STRING.getSchemaInfo()).isCompatibility());
        call("Schemas", "deleteSchema", () -> schemas.deleteSchema(topic));

        var namespaces = admin.namespaces();
        call("Namespaces", "getNamespaces", () -> namespaces.getNamespaces("public").contains(namespace));
        call("Namespaces", "createNamespace", () -> namespaces.createNamespace(namespace + "-new", 2));
        call("Namespaces", "getBundles", () -> namespaces.getBundles(namespace).getNumBundles());
        call("Namespaces", "getPolicies", () -> namespaces.getPolicies(namespace).bundles.getNumBundles());
        call("Namespaces", "getTopics", () -> namespaces.getTopics(namespace));
        call("Namespaces", "setRetention", () -> namespaces.setRetention(namespace, new RetentionPolicies(5, 5)));
        call("Namespaces", "getRetention", () -> namespaces.getRetention(namespace));
        call("Namespaces", "setBacklogQuota", () -> namespaces.setBacklogQuota(namespace,
                BacklogQuota.builder().limitSize(1 << 20)
                        .retentionPolicy(BacklogQuota.RetentionPolicy.producer_exception).build()));
        call("Namespaces", "getBacklogQuotaMap", () -> namespaces.getBacklogQuotaMap(namespace).size());
        call("Namespaces", "setPersistence",
                () -> namespaces.setPersistence(namespace, new PersistencePolicies(1, 1, 1, 1.0)));
        call("Namespaces", "setDispatchRate", () -> namespaces.setDispatchRate(namespace,
                DispatchRate.builder().dispatchThrottlingRateInMsg(1000).dispatchThrottlingRateInByte(1 << 20)
                        .ratePeriodInSecond(1).build()));
        call("Namespaces", "grantPermissionOnNamespace",
                () -> namespaces.grantPermissionOnNamespace(namespace, "guest", Set.of(AuthAction.produce)));
        call("Namespaces", "getPermissions", () -> namespaces.getPermissions(namespace).get("guest"));
        call("Namespaces", "clearNamespaceBacklog", () -> namespaces.clearNamespaceBacklog(namespace));
        call("Namespaces", "clearNamespaceBundleBacklog",
                () -> namespaces.clearNamespaceBundleBacklog(namespace, bundle));
        call("Namespaces", "unload", () -> namespaces.unload(namespace));
        call("Namespaces", "unloadNamespaceBundle", () -> namespaces.unloadNamespaceBundle(namespace, bundle));
        call("Namespaces", "splitNamespaceBundle",
                () -> namespaces.splitNamespaceBundle(namespace, bundle, true, null));
        call("Namespaces", "deleteNamespace", () -> namespaces.deleteNamespace(namespace + "-new"));

        call("Lookup", "lookupTopic", () -> admin.lookups().lookupTopic(topic));

        call("Tenants", "createTenant", () -> admin.tenants().createTenant(unique,
                TenantInfo.builder().allowedClusters(Set.of("c1")).build()));
        call("Tenants", "getTenants", () -> admin.tenants().getTenants().contains(unique));
        call("Tenants", "deleteTenant", () -> admin.tenants().deleteTenant(unique));
        call("Clusters", "getClusters", () -> admin.clusters().getClusters());
        call("Clusters", "getCluster", () -> admin.clusters().getCluster("c1").getServiceUrl() != null);
        call("Brokers", "getActiveBrokers", () -> admin.brokers().getActiveBrokers().size());
        call("Brokers", "getLeaderBroker", () -> admin.brokers().getLeaderBroker().getBrokerId());
        call("Brokers", "getOwnedNamespaces",
                () -> admin.brokers().getOwnedNamespaces("c1", broker).isEmpty());
        call("Brokers", "healthcheck", () -> admin.brokers().healthcheck());
        call("Brokers", "getVersion", () -> admin.brokers().getVersion());
        call("Brokers", "getRuntimeConfigurations",
                () -> admin.brokers().getRuntimeConfigurations().get("clusterName"));
        call("BrokerStats", "getLoadReport", () -> admin.brokerStats().getLoadReport() != null);
        call("BrokerStats", "getTopics", () -> admin.brokerStats().getTopics().isEmpty());
        call("Bookies", "getBookies", () -> admin.bookies().getBookies().getBookies().size());
        call("ResourceQuotas", "getDefaultResourceQuota", () -> admin.resourceQuotas().getDefaultResourceQuota());
        call("ResourceGroups", "createResourceGroup",
                () -> admin.resourcegroups().createResourceGroup(unique, new ResourceGroup()));
        call("ResourceGroups", "getResourceGroups",
                () -> admin.resourcegroups().getResourceGroups().contains(unique));
        call("Functions", "getFunctions", () -> admin.functions().getFunctions("public", unique));
        call("Sinks", "listSinks", () -> admin.sinks().listSinks("public", unique));
        System.exit(0);
    }
}
