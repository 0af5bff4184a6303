import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * One measurement of a RocketMQ broker through its client: fill, drained, lateness or send-backs.
 *
 * <p>The level table of the broker is "1s 2s 1h 40s 40s 40s 40s". Figures go to standard output, one a line.
 */
public final class RocketBench {
    private static final int QUEUES = 4;
    private static final int IN_FLIGHT = 4_000;
    private static final int TWO_SECONDS = 2;
    private static final int ONE_HOUR = 3;
    private static final int FORTY_SECONDS = 4;
    private static final byte[] BODY = new byte[200];

    private final String nameServer;
    private final DefaultMQProducer producer;

    private RocketBench(String nameServer) throws Exception {
        this.nameServer = nameServer;
        producer = new DefaultMQProducer("bench-producer");
        producer.setNamesrvAddr(nameServer);
        producer.setSendMsgTimeout(30_000);
        producer.start();
    }

    public static void main(String[] arguments) throws Exception {
        RocketBench bench = new RocketBench(arguments[1]);
        String topic = arguments[2];
        int number = Integer.parseInt(arguments[3]);
        switch (arguments[0]) {
            case "fill" -> bench.fill(topic, number, Integer.parseInt(arguments[4]));
            case "drained" -> bench.drained(topic, number);
            case "lateness" -> bench.lateness(topic, number, Integer.parseInt(arguments[4]), arguments[5].equals("timer"));
            case "sendbacks" -> bench.sendBacks(topic, number);
            default -> throw new IllegalArgumentException(arguments[0]);
        }
        System.exit(0);
    }

    /** Sends delayed messages, in turns on so many levels of 40 s. */
    private void fill(String topic, int messages, int levels) throws Exception {
        Sending sending = new Sending();
        for (int number = 0; number < messages; number++) {
            Message message = new Message(topic, BODY);
            message.setDelayTimeLevel(FORTY_SECONDS + number % levels);
            sending.send(message, number);
        }
        sending.finish();
    }

    /** Waits until all are in the topic, and tells the rate between the first and the last store timestamp. */
    private void drained(String topic, int messages) throws Exception {
        DefaultMQPullConsumer reader = new DefaultMQPullConsumer("bench-reader");
        reader.setNamesrvAddr(nameServer);
        reader.start();
        List<MessageQueue> queues = new ArrayList<>(reader.fetchSubscribeMessageQueues(topic));
        awaitOffsets(queues, messages);
        long first = Long.MAX_VALUE;
        long last = 0;
        for (MessageQueue queue : queues) {
            long end = producer.maxOffset(queue);
            if (end > 0) {
                first = Math.min(first, stored(reader, queue, 0));
                last = Math.max(last, stored(reader, queue, end - 1));
            }
        }
        Figures.tell("moved", "records/s", messages * 1000.0 / (last - first));
    }

    private static long stored(DefaultMQPullConsumer reader, MessageQueue queue, long offset) throws Exception {
        return reader.pull(queue, "*", offset, 1).getMsgFoundList().get(0).getStoreTimestamp();
    }

    /** Steady load; due is the moment of birth at the client plus 2 s. */
    private void lateness(String topic, int perSecond, int seconds, boolean timer) throws Exception {
        int messages = perSecond * seconds;
        double[] stored = new double[messages];
        double[] received = new double[messages];
        AtomicInteger done = new AtomicInteger();
        Sending sending = new Sending();
        sending.send(new Message(topic, "first".getBytes()), 0);
        sending.finish();
        DefaultMQPushConsumer consumer = consumer(topic, (found, context) -> {
            long now = System.currentTimeMillis();
            for (MessageExt message : found) {
                String number = message.getUserProperty("number");
                if (number != null) {
                    long due = message.getBornTimestamp() + 2_000;
                    stored[Integer.parseInt(number)] = message.getStoreTimestamp() - due;
                    received[Integer.parseInt(number)] = now - due;
                    done.incrementAndGet();
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        Thread.sleep(3_000);
        long began = System.nanoTime();
        for (int number = 0; number < messages; number++) {
            while (System.nanoTime() - began < number * 1_000_000_000L / perSecond) {
                LockSupport.parkNanos(200_000);
            }
            Message message = new Message(topic, BODY);
            message.putUserProperty("number", Integer.toString(number));
            if (timer) {
                MessageAccessor.putProperty(message, "TIMER_DELAY_MS", "2000");
            } else {
                message.setDelayTimeLevel(TWO_SECONDS);
            }
            sending.send(message, number);
        }
        sending.finish();
        await(() -> done.get() >= messages, 60);
        consumer.shutdown();
        Figures.tellLateness("", stored, done.get());
        Figures.tellLateness(" at a consumer", received, done.get());
    }

    /** A push consumer with its default threads fails always; what it sends back waits for an hour. */
    private void sendBacks(String topic, int messages) throws Exception {
        Sending sending = new Sending();
        for (int number = 0; number < messages; number++) {
            sending.send(new Message(topic, BODY), number);
        }
        sending.finish();
        String broker = producer.fetchPublishMessageQueues(topic).get(0).getBrokerName();
        MessageQueue waiting = new MessageQueue("SCHEDULE_TOPIC_XXXX", broker, ONE_HOUR - 1);
        long before = producer.maxOffset(waiting);
        DefaultMQPushConsumer consumer = consumer(topic, (found, context) -> {
            context.setDelayLevelWhenNextConsume(ONE_HOUR);
            return ConsumeConcurrentlyStatus.RECONSUME_LATER;
        });
        await(() -> producer.maxOffset(waiting) > before, 60);
        long first = producer.maxOffset(waiting) - before;
        long began = System.nanoTime();
        await(() -> producer.maxOffset(waiting) - before >= messages, 120);
        Figures.tell("send-backs", "records/s", (messages - first) / ((System.nanoTime() - began) / 1e9));
        consumer.shutdown();
    }

    private DefaultMQPushConsumer consumer(String topic, MessageListenerConcurrently listener) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("bench-" + topic);
        consumer.setNamesrvAddr(nameServer);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener(listener);
        consumer.start();
        return consumer;
    }

    private void awaitOffsets(List<MessageQueue> queues, int messages) throws Exception {
        await(() -> {
            long total = 0;
            for (MessageQueue queue : queues) {
                total += producer.maxOffset(queue);
            }
            return total >= messages;
        }, 120);
    }

    private interface Condition {
        boolean holds() throws Exception;
    }

    private static void await(Condition condition, int seconds) throws Exception {
        long deadline = System.nanoTime() + seconds * 1_000_000_000L;
        while (!condition.holds()) {
            if (System.nanoTime() > deadline) {
                throw new IllegalStateException("nothing came within " + seconds + " s");
            }
            Thread.sleep(2);
        }
    }

    /** Asynchronous sends, so many in flight at most; one that fails is sent again. */
    private final class Sending {
        private final Semaphore room = new Semaphore(IN_FLIGHT);

        void send(Message message, int number) throws Exception {
            room.acquire();
            again(message, number);
        }

        private void again(Message message, int number) {
            try {
                producer.send(message, (queues, sent, of) -> queues.get((int) of % Math.min(QUEUES, queues.size())),
                    number, new SendCallback() {
                        @Override
                        public void onSuccess(SendResult result) {
                            room.release();
                        }

                        @Override
                        public void onException(Throwable error) {
                            LockSupport.parkNanos(10_000_000);
                            again(message, number);
                        }
                    });
            } catch (Exception error) {
                throw new IllegalStateException(error);
            }
        }

        void finish() throws InterruptedException {
            room.acquire(IN_FLIGHT);
            room.release(IN_FLIGHT);
        }
    }
}
