import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.AuthenticationFactory;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.PulsarClientException;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.transaction.Transaction;

/**
 * Pulsar's own client: java -cp … JavaClient.java URL TOPIC HOW LISTENER TOKEN MESSAGE…, where LISTENER and TOKEN may be
 * empty.
 *
 * <p>It subscribes, produces as it is told, and prints what it has consumed, or the exception, as one line. With
 * `transaction` each message is produced in a transaction of its own, and every second one of those is aborted.
 */
public class JavaClient {
    public static void main(String[] arguments) throws Exception {
        String topic = arguments[1];
        boolean inTransactions = arguments[2].equals("transaction");
        String listener = arguments[3];
        var builder = PulsarClient.builder().serviceUrl(arguments[0]).operationTimeout(20, TimeUnit.SECONDS)
                .enableTransaction(inTransactions);
        if (!listener.isEmpty()) {
            builder.listenerName(listener);
        }
        if (!arguments[4].isEmpty()) {
            builder.authentication(AuthenticationFactory.token(arguments[4]));
        }
        List<String> messages = List.of(arguments).subList(5, arguments.length);
        try (PulsarClient client = builder.build()) {
            Consumer<String> consumer = client.newConsumer(Schema.STRING).topic(topic).subscriptionName("java")
                    .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest).subscribe();
            Producer<String> producer = client.newProducer(Schema.STRING).topic(topic)
                    .sendTimeout(inTransactions ? 0 : 20, TimeUnit.SECONDS).create();
            int expected = 0;
            for (int number = 0; number < messages.size(); number++) {
                if (!inTransactions) {
                    producer.send(messages.get(number));
                    expected++;
                    continue;
                }
                Transaction transaction = client.newTransaction()
                        .withTransactionTimeout(1, TimeUnit.MINUTES).build().get();
                producer.newMessage(transaction).value(messages.get(number)).send();
                if (number % 2 == 0) {
                    transaction.commit().get();
                    expected++;
                } else {
                    transaction.abort().get();
                }
            }
            List<String> consumed = new ArrayList<>();
            while (consumed.size() < expected) {
                Message<String> message = consumer.receive(20, TimeUnit.SECONDS);
                if (message == null) {
                    break;
                }
                consumer.acknowledge(message);
                consumed.add(message.getValue());
            }
            if (inTransactions && consumer.receive(1, TimeUnit.SECONDS) != null) {
                consumed.add("what was aborted");
            }
            System.out.println("consumed " + String.join(" ", consumed));
        } catch (PulsarClientException failure) {
            System.out.println("failed " + failure.getClass().getSimpleName());
        }
        System.exit(0);
    }
}
