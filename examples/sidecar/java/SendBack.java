import java.net.URI;
import java.net.URLEncoder;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.StringDeserializer;

/** A consumer with its own poll loop; what fails goes back through the sidecar. Needs the JDK and kafka-clients. */
public class SendBack {
  private static final HttpClient HTTP = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();

  public static void main(String[] arguments) throws Exception {
    String bootstrapServers = arguments[0];
    String group = arguments[2];
    String url = arguments[1] + "/v1/groups/" + URLEncoder.encode(group, StandardCharsets.UTF_8).replace("+", "%20");
    String topic = arguments[3];
    String retryTopic = retryTopic(url);
    Map<String, Object> settings = Map.of(
        "bootstrap.servers", bootstrapServers,
        "group.id", group,
        "enable.auto.commit", false,
        "auto.offset.reset", "earliest",
        "isolation.level", "read_committed",
        "key.deserializer", StringDeserializer.class,
        "value.deserializer", StringDeserializer.class);
    try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings)) {
      consumer.subscribe(List.of(topic, retryTopic));
      while (true) {
        for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofSeconds(1))) {
          try {
            handle(record);
          } catch (RuntimeException error) {
            sendBack(url, record, error);
          }
        }
        try {
          consumer.commitSync();
        } catch (CommitFailedException | RebalanceInProgressException | TimeoutException error) {
          // Another consumer may own the partitions: the next commit covers the records, or its owner reads them again.
          System.err.println(error);
        }
      }
    }
  }

  private static void handle(ConsumerRecord<String, String> record) {
    int times = reconsumeTimes(record);
    if (record.value().equals("cancelled") || record.value().equals("late") && times == 0) {
      throw new IllegalStateException("no \"dep_time\"");
    }
    System.out.println(record.key() + " " + record.value() + " after " + times + " send-backs");
  }

  private static int reconsumeTimes(ConsumerRecord<String, String> record) {
    Header header = record.headers().lastHeader("RECONSUME_TIME");
    return header == null ? 0 : Integer.parseInt(new String(header.value(), StandardCharsets.UTF_8));
  }

  /** Returns when Kafka has the copy: only then may the record be committed. */
  private static void sendBack(String url, ConsumerRecord<String, String> record, Exception error)
      throws Exception {
    String body = """
        {"topic": %s, "partition": %d, "offset": %d, "error": {"type": %s, "message": %s}}"""
        .formatted(json(record.topic()), record.partition(), record.offset(),
            json(error.getClass().getName()), json(String.valueOf(error.getMessage())));
    HttpRequest request = HttpRequest.newBuilder(URI.create(url + "/send-back"))
        .header("content-type", "application/json")
        .timeout(Duration.ofSeconds(30))
        .POST(HttpRequest.BodyPublishers.ofString(body))
        .build();
    call(request);
  }

  /** Makes the retry topic if it is missing, and tells its name. */
  private static String retryTopic(String url) throws Exception {
    HttpRequest request = HttpRequest.newBuilder(URI.create(url))
        .PUT(HttpRequest.BodyPublishers.noBody())
        .build();
    Matcher found = Pattern.compile("\"retryTopic\":\\s*\"([^\"]+)\"").matcher(call(request));
    found.find();
    return found.group(1);
  }

  /** The same call again while nobody answers or Kafka is away: the sidecar makes no second copy. */
  private static String call(HttpRequest request) throws Exception {
    while (true) {
      try {
        HttpResponse<String> answer = HTTP.send(request, BodyHandlers.ofString());
        if (answer.statusCode() == 200) {
          return answer.body();
        }
        if (answer.statusCode() != 503 && answer.statusCode() != 429) {
          throw new IllegalStateException(answer.body());
        }
        Thread.sleep(1000 * Long.parseLong(answer.headers().firstValue("retry-after").orElse("5")));
      } catch (java.io.IOException away) {
        Thread.sleep(1000);
      }
    }
  }

  private static String json(String text) {
    StringBuilder quoted = new StringBuilder("\"");
    for (char one : text.toCharArray()) {
      quoted.append(one < ' ' || one == '"' || one == '\\' ? "\\u%04x".formatted((int) one) : one);
    }
    return quoted.append('"').toString();
  }
}
