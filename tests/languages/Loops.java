import com.rabbitmq.client.Channel;
import com.rabbitmq.client.Connection;
import com.rabbitmq.client.ConnectionFactory;
import com.rabbitmq.client.Delivery;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/**
 * Returns each message of `work`, always, until COUNT have died into `dead`: Loops URL COUNT BATCH. As listener containers of Spring do with a
 * batch that fails: what has come, BATCH at most, goes back by one basic.nack.
 */
class Loops {
    /** Milliseconds that a batch waits for more. */
    static final long QUIET = 50;

    public static void main(String[] arguments) throws Exception {
        int count = Integer.parseInt(arguments[1]);
        int batch = Integer.parseInt(arguments[2]);
        ConnectionFactory factory = new ConnectionFactory();
        factory.setUri(arguments[0]);
        Connection connection = factory.newConnection();
        Channel channel = connection.createChannel();
        channel.basicQos(250);
        BlockingQueue<Delivery> work = new LinkedBlockingQueue<>();
        BlockingQueue<Delivery> dead = new LinkedBlockingQueue<>();
        channel.basicConsume("work", (tag, delivery) -> work.add(delivery), tag -> {});
        connection.createChannel().basicConsume("dead", true, (tag, delivery) -> dead.add(delivery), tag -> {});

        List<Object> deliveries = new ArrayList<>();
        Map<String, Long> returned = new HashMap<>();
        List<Delivery> open = new ArrayList<>();
        for (long since = System.nanoTime(); dead.size() < count; ) {
            Delivery delivery = work.poll(QUIET, TimeUnit.MILLISECONDS);
            long now = System.nanoTime();
            if (delivery != null) {
                since = now;
                open.add(delivery);
                deliveries.add(described(delivery, returned, now));
            }
            if (!open.isEmpty() && (delivery == null || open.size() == batch)) {
                for (Delivery each : open) returned.put(AmqpClient.text(each.getBody()), System.nanoTime());
                channel.basicNack(open.get(open.size() - 1).getEnvelope().getDeliveryTag(), batch > 1, true);
                open.clear();
            }
            if (now - since > AmqpClient.PATIENCE * 1_000_000) throw new IllegalStateException("only " + dead.size() + " dead");
        }
        AmqpClient.step("deliveries", Map.of("deliveries", deliveries));
        List<Object> buried = new ArrayList<>();
        for (Delivery each : dead) buried.add(described(each, Map.of(), 0));
        AmqpClient.step("dead", Map.of("deliveries", buried));
        connection.close();
    }

    static Map<String, Object> described(Delivery delivery, Map<String, Long> returned, long now) {
        Long before = returned.get(AmqpClient.text(delivery.getBody()));
        Map<String, Object> described = new LinkedHashMap<>();
        described.put("body", delivery.getBody());
        described.put("key", delivery.getEnvelope().getRoutingKey());
        described.put("redelivered", delivery.getEnvelope().isRedeliver());
        described.put("headers", delivery.getProperties().getHeaders());
        described.put("waited", before == null ? null : (now - before) / 1e6);
        return described;
    }
}
