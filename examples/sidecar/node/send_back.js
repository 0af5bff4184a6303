// A consumer with kafkajs; what fails goes back through the sidecar.
import { setTimeout as sleep } from "node:timers/promises";
import { Kafka, logLevel } from "kafkajs";

const [bootstrapServers, sidecar, group, topic] = process.argv.slice(2);
const url = `${sidecar}/v1/groups/${encodeURIComponent(group)}`;

function handle(message) {
  const times = Number(message.headers.RECONSUME_TIME ?? 0);
  const value = message.value.toString();
  if (value === "cancelled" || (value === "late" && times === 0)) {
    throw new Error('no "dep_time"');
  }
  console.log(`${message.key} ${value} after ${times} send-backs`);
}

// Resolves when Kafka has the copy: only then may the record be committed.
async function sendBack(topic, partition, offset, error) {
  const body = { topic, partition, offset: Number(offset), error: { type: error.name, message: error.message } };
  await call("POST", `${url}/send-back`, body);
}

// The same call again while nobody answers or Kafka is away: the sidecar makes no second copy.
async function call(method, url, body) {
  for (;;) {
    let answer;
    try {
      answer = await fetch(url, {
        method,
        body: body && JSON.stringify(body),
        headers: { "content-type": "application/json" },
        signal: AbortSignal.timeout(30_000),
      });
    } catch {
      await sleep(1_000);
      continue;
    }
    if (answer.ok) {
      return answer.json();
    }
    if (![429, 503].includes(answer.status)) {
      throw new Error(await answer.text());
    }
    await sleep(1_000 * Number(answer.headers.get("retry-after") ?? 5));
  }
}

// Makes the retry topic if it is missing, and tells its name.
const { retryTopic } = await call("PUT", url);
const kafka = new Kafka({ brokers: bootstrapServers.split(","), logLevel: logLevel.ERROR });
const consumer = kafka.consumer({ groupId: group }); // it reads committed records only
await consumer.connect();
await consumer.subscribe({ topics: [topic, retryTopic], fromBeginning: true });
await consumer.run({
  // kafkajs commits a record when this has resolved.
  eachMessage: async ({ topic, partition, message, heartbeat }) => {
    try {
      handle(message);
    } catch (error) {
      await sendBack(topic, partition, message.offset, error);
    }
    await heartbeat();
  },
});
