/* The bare copy loop of benchmarks/scheduler/throughput.py without Python, on the librdkafka that confluent-kafka brings.
 *
 * The wheel has no header file, so what is used of librdkafka's C API, which is stable, is declared here.
 * Arguments: bootstrap servers, name of the group and the transactions, source, target, records. Prints the seconds of
 * CPU from the first record on. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>
#include <time.h>

typedef struct rd_kafka rd_kafka_t;
typedef struct rd_kafka_conf rd_kafka_conf_t;
typedef struct rd_kafka_queue rd_kafka_queue_t;
typedef struct rd_kafka_headers rd_kafka_headers_t;
typedef struct rd_kafka_error rd_kafka_error_t;
typedef struct rd_kafka_consumer_group_metadata rd_kafka_consumer_group_metadata_t;
typedef struct {
  int err;
  void *topic;
  int32_t partition;
  void *payload;
  size_t len;
  void *key;
  size_t key_len;
  int64_t offset;
  void *hidden;
} rd_kafka_message_t;
typedef struct {
  char *topic;
  int32_t partition;
  int64_t offset;
  void *metadata;
  size_t metadata_size;
  void *opaque;
  int err;
  void *hidden;
} rd_kafka_topic_partition_t;
typedef struct {
  int cnt;
  int size;
  rd_kafka_topic_partition_t *elems;
} rd_kafka_topic_partition_list_t;
enum { PRODUCER, CONSUMER };
enum { TAG_END, TAG_TOPIC, TAG_RKT, TAG_PARTITION, TAG_VALUE, TAG_KEY, TAG_OPAQUE, TAG_FLAGS, TAG_TIME, TAG_HEADER, TAG_HEADERS };
enum { COPY_VALUE = 2, ANY_PARTITION = -1, QUEUE_FULL = -184, BATCH = 5000, WAIT_MS = 30000 };

rd_kafka_conf_t *rd_kafka_conf_new(void);
int rd_kafka_conf_set(rd_kafka_conf_t *, const char *, const char *, char *, size_t);
rd_kafka_t *rd_kafka_new(int, rd_kafka_conf_t *, char *, size_t);
int rd_kafka_poll_set_consumer(rd_kafka_t *);
int rd_kafka_poll(rd_kafka_t *, int);
int rd_kafka_subscribe(rd_kafka_t *, const rd_kafka_topic_partition_list_t *);
rd_kafka_queue_t *rd_kafka_queue_get_consumer(rd_kafka_t *);
ssize_t rd_kafka_consume_batch_queue(rd_kafka_queue_t *, int, rd_kafka_message_t **, size_t);
void rd_kafka_message_destroy(rd_kafka_message_t *);
int rd_kafka_message_headers(const rd_kafka_message_t *, rd_kafka_headers_t **);
rd_kafka_headers_t *rd_kafka_headers_copy(const rd_kafka_headers_t *);
int rd_kafka_producev(rd_kafka_t *, ...);
rd_kafka_topic_partition_list_t *rd_kafka_topic_partition_list_new(int);
void rd_kafka_topic_partition_list_destroy(rd_kafka_topic_partition_list_t *);
rd_kafka_topic_partition_t *rd_kafka_topic_partition_list_add(rd_kafka_topic_partition_list_t *, const char *, int32_t);
rd_kafka_topic_partition_t *rd_kafka_topic_partition_list_find(const rd_kafka_topic_partition_list_t *, const char *, int32_t);
rd_kafka_error_t *rd_kafka_init_transactions(rd_kafka_t *, int);
rd_kafka_error_t *rd_kafka_begin_transaction(rd_kafka_t *);
rd_kafka_error_t *rd_kafka_commit_transaction(rd_kafka_t *, int);
rd_kafka_error_t *rd_kafka_send_offsets_to_transaction(rd_kafka_t *, const rd_kafka_topic_partition_list_t *,
                                                       const rd_kafka_consumer_group_metadata_t *, int);
rd_kafka_consumer_group_metadata_t *rd_kafka_consumer_group_metadata(rd_kafka_t *);
void rd_kafka_consumer_group_metadata_destroy(rd_kafka_consumer_group_metadata_t *);
const char *rd_kafka_error_string(const rd_kafka_error_t *);
int rd_kafka_consumer_close(rd_kafka_t *);
void rd_kafka_destroy(rd_kafka_t *);

static void end(const char *why) {
  fprintf(stderr, "%s\n", why);
  exit(1);
}

static void require(rd_kafka_error_t *error) {
  if (error) end(rd_kafka_error_string(error));
}

static double cpu(void) {
  struct timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return now.tv_sec + now.tv_nsec / 1e9;
}

static rd_kafka_t *client(int kind, const char *const *settings) {
  char why[512];
  rd_kafka_conf_t *conf = rd_kafka_conf_new();
  for (; settings[0]; settings += 2)
    if (rd_kafka_conf_set(conf, settings[0], settings[1], why, sizeof why)) end(why);
  rd_kafka_t *made = rd_kafka_new(kind, conf, why, sizeof why);
  if (!made) end(why);
  return made;
}

static void copy(rd_kafka_t *producer, const rd_kafka_message_t *one, const char *target) {
  rd_kafka_headers_t *headers = NULL, *copied;
  rd_kafka_message_headers(one, &headers);
  copied = rd_kafka_headers_copy(headers);
  while (rd_kafka_producev(producer, TAG_TOPIC, target, TAG_PARTITION, (int32_t)0, TAG_VALUE, one->payload, one->len,
                           TAG_KEY, one->key, one->key_len, TAG_FLAGS, COPY_VALUE, TAG_HEADERS, copied,
                           TAG_END) == QUEUE_FULL)
    rd_kafka_poll(producer, 10);
}

int main(int count, char **arguments) {
  if (count != 6) end("usage: copy SERVERS NAME SOURCE TARGET RECORDS");
  const char *servers = arguments[1], *name = arguments[2], *source = arguments[3], *target = arguments[4];
  int wanted = atoi(arguments[5]), done = 0;
  const char *const reading[] = {"bootstrap.servers", servers, "group.id", name, "auto.offset.reset", "earliest",
                                 "enable.auto.commit", "false", "isolation.level", "read_committed", NULL};
  const char *const writing[] = {"bootstrap.servers", servers, "transactional.id", name, "linger.ms", "1",
                                 "retry.backoff.ms", "1", "retry.backoff.max.ms", "10",
                                 "queue.buffering.max.messages", "200000", NULL};
  rd_kafka_t *consumer = client(CONSUMER, reading), *producer = client(PRODUCER, writing);
  rd_kafka_poll_set_consumer(consumer);
  require(rd_kafka_init_transactions(producer, WAIT_MS));
  rd_kafka_topic_partition_list_t *topics = rd_kafka_topic_partition_list_new(1);
  rd_kafka_topic_partition_list_add(topics, source, ANY_PARTITION);
  rd_kafka_subscribe(consumer, topics);
  rd_kafka_queue_t *queue = rd_kafka_queue_get_consumer(consumer);
  static rd_kafka_message_t *batch[BATCH];
  double began = 0;
  while (done < wanted) {
    /* As Python's poll, then consume without waiting: what is there now is a batch. */
    ssize_t found = rd_kafka_consume_batch_queue(queue, 1000, batch, 1);
    if (found <= 0) continue;
    ssize_t more = rd_kafka_consume_batch_queue(queue, 0, batch + 1, BATCH - 1);
    if (more > 0) found += more;
    if (!began) began = cpu();
    rd_kafka_topic_partition_list_t *offsets = rd_kafka_topic_partition_list_new(8);
    require(rd_kafka_begin_transaction(producer));
    for (ssize_t at = 0; at < found; at++) {
      rd_kafka_message_t *one = batch[at];
      if (!one->err) {
        copy(producer, one, target);
        rd_kafka_topic_partition_t *where = rd_kafka_topic_partition_list_find(offsets, source, one->partition);
        if (!where) where = rd_kafka_topic_partition_list_add(offsets, source, one->partition);
        where->offset = one->offset + 1;
        done++;
      }
      rd_kafka_message_destroy(one);
    }
    rd_kafka_consumer_group_metadata_t *group = rd_kafka_consumer_group_metadata(consumer);
    require(rd_kafka_send_offsets_to_transaction(producer, offsets, group, WAIT_MS));
    require(rd_kafka_commit_transaction(producer, WAIT_MS));
    rd_kafka_consumer_group_metadata_destroy(group);
    rd_kafka_topic_partition_list_destroy(offsets);
  }
  printf("%f\n", cpu() - began);
  rd_kafka_consumer_close(consumer);
  return 0;
}
