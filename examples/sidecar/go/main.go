// A consumer with its own poll loop; what fails goes back through the sidecar.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

var client = &http.Client{Timeout: 30 * time.Second}

func main() {
	bootstrapServers, sidecar, group, topic := os.Args[1], os.Args[2], os.Args[3], os.Args[4]
	address := sidecar + "/v1/groups/" + url.PathEscape(group)
	consumer, err := kgo.NewClient(
		kgo.SeedBrokers(bootstrapServers),
		kgo.ConsumerGroup(group),
		kgo.ConsumeTopics(topic, retryTopic(address)),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.DisableAutoCommit(),
		kgo.BlockRebalanceOnPoll(),
	)
	if err != nil {
		log.Fatal(err)
	}
	defer consumer.Close()
	for {
		consumer.PollFetches(context.Background()).EachRecord(func(record *kgo.Record) {
			if err := handle(record); err != nil {
				sendBack(address, record, err)
			}
		})
		if err := consumer.CommitUncommittedOffsets(context.Background()); err != nil {
			log.Print(err)
		}
		consumer.AllowRebalance()
	}
}

func handle(record *kgo.Record) error {
	times := reconsumeTimes(record)
	value := string(record.Value)
	if value == "cancelled" || value == "late" && times == 0 {
		return errors.New(`no "dep_time"`)
	}
	fmt.Printf("%s %s after %d send-backs\n", record.Key, value, times)
	return nil
}

func reconsumeTimes(record *kgo.Record) int {
	times := 0
	for _, header := range record.Headers {
		if header.Key == "RECONSUME_TIME" {
			times, _ = strconv.Atoi(string(header.Value))
		}
	}
	return times
}

// sendBack returns when Kafka has the copy: only then may the record be committed.
func sendBack(address string, record *kgo.Record, err error) {
	body, _ := json.Marshal(map[string]any{
		"topic":     record.Topic,
		"partition": record.Partition,
		"offset":    record.Offset,
		"error":     map[string]string{"type": fmt.Sprintf("%T", err), "message": err.Error()},
	})
	call("POST", address+"/send-back", body)
}

// retryTopic makes the retry topic if it is missing, and tells its name.
func retryTopic(address string) string {
	var group struct{ RetryTopic string }
	if err := json.Unmarshal(call("PUT", address, nil), &group); err != nil {
		log.Fatal(err)
	}
	return group.RetryTopic
}

// call makes the same call again while nobody answers or Kafka is away: the sidecar makes no second copy.
func call(method, address string, body []byte) []byte {
	for {
		request, err := http.NewRequest(method, address, bytes.NewReader(body))
		if err != nil {
			log.Fatal(err)
		}
		request.Header.Set("content-type", "application/json")
		answer, err := client.Do(request)
		if err != nil {
			time.Sleep(time.Second)
			continue
		}
		text, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		switch {
		case err == nil && answer.StatusCode == 200:
			return text
		case err == nil && answer.StatusCode != 503 && answer.StatusCode != 429:
			log.Fatalf("%s", text)
		}
		seconds, err := strconv.Atoi(answer.Header.Get("retry-after"))
		if err != nil {
			seconds = 5
		}
		time.Sleep(time.Duration(seconds) * time.Second)
	}
}
