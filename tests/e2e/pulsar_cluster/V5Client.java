import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.apache.pulsar.client.api.v5.Checkpoint;
import org.apache.pulsar.client.api.v5.CheckpointConsumer;
import org.apache.pulsar.client.api.v5.Message;
import org.apache.pulsar.client.api.v5.Producer;
import org.apache.pulsar.client.api.v5.PulsarClient;
import org.apache.pulsar.client.api.v5.PulsarClientException;
import org.apache.pulsar.client.api.v5.QueueConsumer;
import org.apache.pulsar.client.api.v5.StreamConsumer;
import org.apache.pulsar.client.api.v5.Transaction;
import org.apache.pulsar.client.api.v5.auth.AuthenticationFactory;
import org.apache.pulsar.client.api.v5.config.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.v5.config.TlsPolicy;
import org.apache.pulsar.client.api.v5.config.TransactionPolicy;
import org.apache.pulsar.client.api.v5.schema.Schema;

/**
 * Pulsar's V5 client: java -cp … V5Client.java URL TOPIC TOKEN CA HOW KIND…, where CA may be empty and HOW is `plain` or
 * `transaction`.
 *
 * <p>It has one producer and a consumer of each of these kinds: queue, stream, checkpoint (alone), group (checkpoint, in
 * a group). For each line that it reads it produces ten messages, and prints which kinds have received all of them.
 */
public class V5Client {
    private static final int MESSAGES = 10;
    private static final Duration PATIENCE = Duration.ofSeconds(90);

    /** Receives one message, or null. */
    private interface Receiver {
        Message<String> receive(Duration patience) throws PulsarClientException;
    }

    private record Consumer(String kind, Receiver receiver) {
        /** Until all are there; some may come again, as after a reconnect. */
        boolean receives(Set<String> expected) throws PulsarClientException {
            long deadline = System.nanoTime() + PATIENCE.toNanos();
            Set<String> missing = new HashSet<>(expected);
            while (!missing.isEmpty() && System.nanoTime() < deadline) {
                Message<String> message = receiver.receive(Duration.ofSeconds(1));
                if (message != null) {
                    missing.remove(message.value());
                }
            }
            return missing.isEmpty();
        }
    }

    public static void main(String[] arguments) throws Exception {
        String topic = arguments[1];
        boolean inTransactions = arguments[4].equals("transaction");
        var builder = PulsarClient.builder().serviceUrl(arguments[0]).operationTimeout(Duration.ofSeconds(30))
                .authentication(AuthenticationFactory.token(arguments[2]));
        if (!arguments[3].isEmpty()) {
            builder.tlsPolicy(TlsPolicy.builder().trustCertsFilePath(arguments[3]).build());
        }
        if (inTransactions) {
            builder.transactionPolicy(TransactionPolicy.builder().timeout(Duration.ofMinutes(1)).build());
        }
        try (PulsarClient client = builder.build()) {
            Producer<String> producer = client.newProducer(Schema.string()).topic(topic).create();
            List<Consumer> consumers = new ArrayList<>();
            for (String kind : List.of(arguments).subList(5, arguments.length)) {
                consumers.add(new Consumer(kind, receiver(client, topic, kind)));
            }
            System.out.println("said ready");
            var lines = new BufferedReader(new InputStreamReader(System.in));
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                Set<String> produced = new HashSet<>();
                for (int number = 0; number < MESSAGES; number++) {
                    String text = line + " " + number;
                    var message = producer.newMessage().key(text).value(text);
                    if (inTransactions) {
                        Transaction transaction = client.newTransaction();
                        message.transaction(transaction).send();
                        transaction.commit();
                    } else {
                        message.send();
                    }
                    produced.add(text);
                }
                List<String> received = new ArrayList<>();
                for (Consumer consumer : consumers) {
                    if (consumer.receives(produced)) {
                        received.add(consumer.kind());
                    }
                }
                System.out.println("said " + String.join(" ", received));
            }
        } catch (PulsarClientException failure) {
            failure.printStackTrace(System.out);
            System.out.println("said " + failure.getClass().getSimpleName() + ": " + failure.getMessage());
        }
        System.exit(0);
    }

    private static Receiver receiver(PulsarClient client, String topic, String kind) throws PulsarClientException {
        switch (kind) {
            case "queue":
                QueueConsumer<String> queue = client.newQueueConsumer(Schema.string()).topic(topic)
                        .subscriptionName("queue").subscriptionInitialPosition(SubscriptionInitialPosition.EARLIEST)
                        .subscribe();
                return patience -> {
                    Message<String> message = queue.receive(patience);
                    if (message != null) {
                        queue.acknowledge(message.id());
                    }
                    return message;
                };
            case "stream":
                StreamConsumer<String> stream = client.newStreamConsumer(Schema.string()).topic(topic)
                        .subscriptionName("stream").subscriptionInitialPosition(SubscriptionInitialPosition.EARLIEST)
                        .subscribe();
                return patience -> {
                    Message<String> message = stream.receive(patience);
                    if (message != null) {
                        stream.acknowledgeCumulative(message.id());
                    }
                    return message;
                };
            default:
                var builder = client.newCheckpointConsumer(Schema.string()).topic(topic)
                        .startPosition(Checkpoint.earliest());
                CheckpointConsumer<String> checkpoint =
                        kind.equals("group") ? builder.consumerGroup("group").create() : builder.create();
                return checkpoint::receive;
        }
    }
}
