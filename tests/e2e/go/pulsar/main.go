// A client that does as it is told, like told_client.py: URL LOG SECONDS TOKEN CA LISTENER, where the last three may be
// empty. Each line of its input is a call, as JSON; each line of its output what came of it.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/apache/pulsar-client-go/pulsar/log"
	"github.com/apache/pulsar-client-go/pulsaradmin"
	"github.com/apache/pulsar-client-go/pulsaradmin/pkg/utils"
)

type told struct {
	client    pulsar.Client
	patience  time.Duration
	url       string
	token     string
	producers map[string]pulsar.Producer
	consumer  pulsar.Consumer
}

func (t *told) subscribe(options pulsar.ConsumerOptions) error {
	options.SubscriptionName = "told"
	options.SubscriptionInitialPosition = pulsar.SubscriptionPositionEarliest
	consumer, err := t.client.Subscribe(options)
	t.consumer = consumer
	return err
}

func (t *told) produce(topic string, messages []string) error {
	producer, made := t.producers[topic]
	if !made {
		var err error
		if producer, err = t.client.CreateProducer(pulsar.ProducerOptions{Topic: topic}); err != nil {
			return err
		}
		t.producers[topic] = producer
	}
	for _, message := range messages {
		soon, cancel := context.WithTimeout(context.Background(), t.patience)
		_, err := producer.Send(soon, &pulsar.ProducerMessage{Payload: []byte(message)})
		cancel()
		if err != nil {
			return err
		}
	}
	return nil
}

func (t *told) consumeOne() (string, error) {
	soon, cancel := context.WithTimeout(context.Background(), t.patience)
	defer cancel()
	message, err := t.consumer.Receive(soon)
	if err != nil {
		return "", err
	}
	return string(message.Payload()), t.consumer.Ack(message)
}

func (t *told) consume(messages int) ([]string, error) {
	consumed := []string{}
	for len(consumed) < messages {
		message, err := t.consumeOne()
		if err != nil {
			return nil, err
		}
		consumed = append(consumed, message)
	}
	return consumed, nil
}

func (t *told) consumeUntil(last string) error {
	for {
		if message, err := t.consumeOne(); err != nil || message == last {
			return err
		}
	}
}

func (t *told) read(topic string, messages int) ([]string, error) {
	reader, err := t.client.CreateReader(pulsar.ReaderOptions{Topic: topic, StartMessageID: pulsar.EarliestMessageID()})
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	read := []string{}
	for len(read) < messages {
		soon, cancel := context.WithTimeout(context.Background(), t.patience)
		message, err := reader.Next(soon)
		cancel()
		if err != nil {
			return nil, err
		}
		read = append(read, string(message.Payload()))
	}
	return read, nil
}

// What the admin client of the same module does with a topic from its beginning to its end.
func (t *told) administer(topic string) ([]string, error) {
	admin, err := pulsaradmin.NewClient(&pulsaradmin.Config{WebServiceURL: t.url, Token: t.token})
	if err != nil {
		return nil, err
	}
	name, err := utils.GetTopicName(topic)
	if err != nil {
		return nil, err
	}
	topics, subscriptions := admin.Topics(), admin.Subscriptions()
	steps := []struct {
		name string
		do   func() error
	}{
		{"create", func() error { return topics.Create(*name, 0) }},
		{"subscribe", func() error { return subscriptions.Create(*name, "kept", utils.Earliest) }},
		{"subscriptions", func() error {
			found, err := subscriptions.List(*name)
			if err == nil && (len(found) != 1 || found[0] != "kept") {
				err = fmt.Errorf("subscriptions %v", found)
			}
			return err
		}},
		{"stats", func() error { _, err := topics.GetStats(*name); return err }},
		{"internal stats", func() error { _, err := topics.GetInternalStats(*name); return err }},
		{"lookup", func() error { _, err := topics.Lookup(*name); return err }},
		{"reset the cursor", func() error { return subscriptions.ResetCursorToMessageID(*name, "kept", utils.Earliest) }},
		{"unload", func() error { return topics.Unload(*name) }},
		{"delete", func() error { return topics.Delete(*name, true, true) }},
	}
	done := []string{}
	for _, step := range steps {
		if err := step.do(); err != nil {
			return nil, fmt.Errorf("%s: %w", step.name, err)
		}
		done = append(done, step.name)
	}
	return done, nil
}

func (t *told) do(line []byte) (any, error) {
	var call []any
	if err := json.Unmarshal(line, &call); err != nil {
		return nil, err
	}
	topic, _ := call[1].(string)
	count, _ := call[len(call)-1].(float64)
	switch call[0] {
	case "partitions":
		return t.client.TopicPartitions(topic)
	case "subscribe":
		return nil, t.subscribe(pulsar.ConsumerOptions{Topic: topic})
	case "subscribe_to_all":
		return nil, t.subscribe(pulsar.ConsumerOptions{TopicsPattern: topic})
	case "produce":
		messages := []string{}
		for _, message := range call[2:] {
			messages = append(messages, message.(string))
		}
		return nil, t.produce(topic, messages)
	case "consume":
		return t.consume(int(count))
	case "consume_until":
		return nil, t.consumeUntil(topic)
	case "read":
		return t.read(topic, int(count))
	case "administer":
		return t.administer(topic)
	}
	return nil, fmt.Errorf("no such call: %v", call[0])
}

func run(url, file, seconds, token, ca, listener string) error {
	patience, err := strconv.Atoi(seconds)
	if err != nil {
		return err
	}
	output, err := os.Create(file)
	if err != nil {
		return err
	}
	options := pulsar.ClientOptions{
		URL:                   url,
		ListenerName:          listener,
		TLSTrustCertsFilePath: ca,
		TLSValidateHostname:   true,
		OperationTimeout:      time.Duration(patience) * time.Second,
		Logger:                log.NewLoggerWithSlog(slog.New(slog.NewTextHandler(output, nil))),
	}
	if token != "" {
		options.Authentication = pulsar.NewAuthenticationToken(token)
	}
	client, err := pulsar.NewClient(options)
	if err != nil {
		return err
	}
	t := told{client, options.OperationTimeout, url, token, map[string]pulsar.Producer{}, nil}
	calls := bufio.NewScanner(os.Stdin)
	calls.Buffer(nil, 1<<20)
	answers := json.NewEncoder(os.Stdout)
	for calls.Scan() {
		answer := map[string]any{}
		if done, err := t.do(calls.Bytes()); err != nil {
			answer["failed"] = err.Error()
		} else {
			answer["done"] = done
		}
		if err := answers.Encode(answer); err != nil {
			return err
		}
	}
	return calls.Err()
}

func main() {
	if len(os.Args) != 7 {
		fmt.Fprintln(os.Stderr, "URL LOG SECONDS TOKEN CA LISTENER")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2], os.Args[3], os.Args[4], os.Args[5], os.Args[6]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
