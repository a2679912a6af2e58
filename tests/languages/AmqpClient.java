import com.rabbitmq.client.AMQP.BasicProperties;
import com.rabbitmq.client.AMQP.Queue;
import com.rabbitmq.client.Channel;
import com.rabbitmq.client.Connection;
import com.rabbitmq.client.ConnectionFactory;
import com.rabbitmq.client.Delivery;
import com.rabbitmq.client.Method;
import com.rabbitmq.client.ShutdownSignalException;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Date;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;

/** The script of README.md by RabbitMQ's Java client. */
class AmqpClient {
    static final long PATIENCE = 60_000;

    static String kind;

    // === what it prints

    /** A value with its type, as JSON. */
    static String shown(Object value) {
        if (value instanceof Map<?, ?> map) {
            return map.entrySet().stream().map(member -> quoted(member.getKey().toString()) + ": " + shown(member.getValue()))
                    .collect(Collectors.joining(", ", "{", "}"));
        }
        if (value instanceof List<?> list) {
            return list.stream().map(AmqpClient::shown).collect(Collectors.joining(", ", "[", "]"));
        }
        String type = value == null ? "null" : value.getClass().getSimpleName();
        if (value instanceof byte[] bytes) value = text(bytes);
        if (value instanceof Date date) value = date.getTime() / 1000;
        return quoted(type + " " + value);
    }

    static String quoted(String text) {
        return '"' + text.replace("\\", "\\\\").replace("\"", "\\\"") + '"';
    }

    static String text(byte[] bytes) {
        return new String(bytes, StandardCharsets.UTF_8);
    }

    static void step(String name, Map<String, Object> results) {
        String members = shown(results);
        System.out.println("{\"step\": " + quoted(name) + (results.isEmpty() ? "" : ", ") + members.substring(1));
    }

    // === what it does

    static Queue.DeclareOk declare(Channel channel, String queue, Map<String, Object> arguments) throws IOException {
        Map<String, Object> all = new HashMap<>(arguments);
        all.put("x-queue-type", kind);
        return channel.queueDeclare(queue, true, false, false, all);
    }

    static void publish(Channel channel, String queue, String body, String expiration) throws Exception {
        Map<String, Object> headers = Map.of(
                "text", "zwölf", "int", 7, "long", 1L << 40, "bool", true, "list", List.of(1, "two"), "table", Map.of("deep", "er"));
        BasicProperties properties = new BasicProperties.Builder().contentType("text/plain").deliveryMode(2).priority(3).messageId(body)
                .timestamp(new Date(1_600_000_000_000L)).expiration(expiration).headers(headers).build();
        channel.basicPublish("", queue, true, properties, body.getBytes(StandardCharsets.UTF_8));
        channel.waitForConfirmsOrDie(PATIENCE);
    }

    interface Settle {
        void settle(long tag, String body, boolean redelivered) throws Exception;
    }

    /** That many deliveries, each settled. */
    static List<Object> consume(Channel channel, String queue, int count, Settle settle) throws Exception {
        BlockingQueue<Delivery> arrived = new LinkedBlockingQueue<>();
        String consumer = channel.basicConsume(queue, (tag, delivery) -> arrived.add(delivery), tag -> {});
        List<Object> taken = new ArrayList<>();
        while (taken.size() < count) {
            Delivery delivery = arrived.poll(PATIENCE, TimeUnit.MILLISECONDS);
            if (delivery == null) throw new IllegalStateException("nothing in " + queue);
            var envelope = delivery.getEnvelope();
            var properties = delivery.getProperties();
            Map<String, Object> described = new LinkedHashMap<>();
            described.put("body", delivery.getBody());
            described.put("exchange", envelope.getExchange());
            described.put("key", envelope.getRoutingKey());
            described.put("redelivered", envelope.isRedeliver());
            described.put("contentType", properties.getContentType());
            described.put("deliveryMode", properties.getDeliveryMode());
            described.put("priority", properties.getPriority());
            described.put("messageId", properties.getMessageId());
            described.put("timestamp", properties.getTimestamp());
            described.put("expiration", properties.getExpiration());
            described.put("headers", properties.getHeaders());
            taken.add(described);
            settle.settle(envelope.getDeliveryTag(), text(delivery.getBody()), envelope.isRedeliver());
        }
        channel.basicCancel(consumer);
        return taken;
    }

    interface Attempt {
        void run() throws IOException;
    }

    static Object refusal(Attempt attempt) {
        try {
            attempt.run();
        } catch (IOException error) {
            ShutdownSignalException signal = (ShutdownSignalException) error.getCause();
            Method reason = signal.getReason();
            return Map.of("reason", reason.toString(), "by_application", signal.isInitiatedByApplication());
        }
        throw new IllegalStateException("not refused");
    }

    public static void main(String[] arguments) throws Exception {
        kind = arguments[1];
        ConnectionFactory factory = new ConnectionFactory();
        factory.setUri(arguments[0]);
        Connection connection = factory.newConnection();
        Channel first = connection.createChannel();
        Channel second = connection.createChannel();
        step("connect", Map.of("server", connection.getServerProperties(), "frame_max", connection.getFrameMax(),
                "channel_max", connection.getChannelMax(), "heartbeat", connection.getHeartbeat()));

        first.exchangeDeclare("dead", "direct", true);
        var queues = List.of(
                declare(first, "graves", Map.of()),
                declare(first, "dead letters", Map.of("x-dead-letter-exchange", "", "x-dead-letter-routing-key", "graves")),
                declare(first, "work", Map.of("x-dead-letter-exchange", "dead")),
                declare(first, "brief", Map.of("x-dead-letter-exchange", "dead", "x-dead-letter-routing-key", "late")));
        for (String key : List.of("work", "late")) first.queueBind("dead letters", "dead", key);
        List<Object> counts = new ArrayList<>();
        for (var queue : queues) {
            counts.add(Map.of("queue", queue.getQueue(), "messages", queue.getMessageCount(), "consumers", queue.getConsumerCount()));
        }
        step("declare", Map.of("queues", counts));

        first.confirmSelect();
        BlockingQueue<Object> returns = new LinkedBlockingQueue<>();
        first.addReturnListener((code, text, exchange, key, properties, body) ->
                returns.add(Map.of("code", code, "text", text, "key", key, "body", body)));
        var bodies = List.of("acked", "nacked", "rejected", "requeued");
        for (String body : bodies) publish(first, "work", body, null);
        publish(first, "nowhere", "unroutable", null);
        step("publish", Map.of("confirmed", bodies, "returned", returns.take()));

        first.basicQos(10);
        step("consume", Map.of("deliveries", consume(first, "work", 5, (tag, body, redelivered) -> {
            if (body.equals("nacked")) first.basicNack(tag, false, false);
            else if (body.equals("rejected")) first.basicReject(tag, false);
            else if (body.equals("requeued") && !redelivered) first.basicNack(tag, false, true);
            else first.basicAck(tag, false);
        })));

        int[] seen = {0};
        step("dead letters", Map.of("deliveries", consume(first, "dead letters", 3, (tag, body, redelivered) -> {
            if (body.equals("nacked")) first.basicNack(tag, false, false);
            else first.basicAck(tag, false);
            if (++seen[0] == 2) publish(first, "brief", "late", "50");
        })));

        step("second death", Map.of("deliveries", consume(first, "graves", 1, (tag, body, redelivered) -> first.basicAck(tag, false))));

        step("get", Map.of("empty", first.basicGet("work", false) == null));

        Channel third = connection.createChannel();
        step("refused", Map.of("refusals", List.of(
                refusal(() -> declare(second, "work", Map.of("x-dead-letter-exchange", "other"))),
                refusal(() -> third.queueDeclarePassive("missing")))));

        Map<String, Object> messages = new HashMap<>();
        for (var queue : queues) messages.put(queue.getQueue(), first.queueDelete(queue.getQueue()).getMessageCount());
        first.exchangeDelete("dead");
        step("delete", Map.of("messages", messages));

        first.close();
        connection.close();
        step("close", Map.of());
    }
}
