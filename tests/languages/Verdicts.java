import com.rabbitmq.client.Channel;
import com.rabbitmq.client.Connection;
import com.rabbitmq.client.ConnectionFactory;
import com.rabbitmq.client.Delivery;
import com.rabbitmq.client.impl.recovery.AutorecoveringChannel;
import com.rabbitmq.client.impl.recovery.RecoveryAwareChannelN;
import java.io.IOException;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;

/** Judges the first delivery of `work` COUNT times, and the one after a lost connection once: Verdicts URL COUNT. */
class Verdicts {
    static void verdict(Channel channel, long tag, Map<String, Object> said) throws IOException {
        if (channel instanceof AutorecoveringChannel recovering) {
            tag -= ((RecoveryAwareChannelN) recovering.getDelegate()).getActiveDeliveryTagOffset();
        }
        if (channel.getConnection().getServerProperties().containsKey("dlx_proxy")) {
            said = new HashMap<>(said);
            said.computeIfPresent("error", (name, text) -> text.toString().substring(0, Math.min(text.toString().length(), 4096)));
            channel.queueUnbind("any", "dlx-proxy.verdict", Long.toString(tag), said);
        }
    }

    public static void main(String[] arguments) throws Exception {
        ConnectionFactory factory = new ConnectionFactory();
        factory.setUri(arguments[0]);
        factory.setNetworkRecoveryInterval(100);
        Connection connection = factory.newConnection();
        Channel channel = connection.createChannel();
        channel.basicQos(1);
        channel.queueDeclare("work", true, false, false, Map.of("x-dead-letter-exchange", "", "x-dead-letter-routing-key", "dead"));
        BlockingQueue<Delivery> work = new LinkedBlockingQueue<>();
        channel.basicConsume("work", (tag, delivery) -> work.add(delivery), tag -> {});
        Delivery first = work.take();
        for (int number = 0; number < Integer.parseInt(arguments[1]); number++) {
            verdict(channel, first.getEnvelope().getDeliveryTag(), Map.of("reason", "number " + number));
        }
        AmqpClient.step("judged", Map.of());
        channel.basicReject(work.take().getEnvelope().getDeliveryTag(), false);
        Delivery last = work.take();
        long tag = last.getEnvelope().getDeliveryTag();
        verdict(channel, tag, Map.of("reason", "no address", "error", "a trace".repeat(100_000), "headers", Map.of("tenant", 7)));
        channel.basicReject(tag, false);
        connection.close();
        AmqpClient.step("done", Map.of());
    }
}
