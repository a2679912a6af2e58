// The script of README.md by amqp091-go.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

type values = map[string]interface{}

// shown is a value with its type.
func shown(value interface{}) interface{} {
	switch value := value.(type) {
	case values:
		members := values{}
		for key, member := range value {
			members[key] = shown(member)
		}
		return members
	case amqp.Table:
		return shown(values(value))
	case []values:
		members := []interface{}{}
		for _, member := range value {
			members = append(members, shown(member))
		}
		return members
	case []interface{}:
		members := []interface{}{}
		for _, member := range value {
			members = append(members, shown(member))
		}
		return members
	case []byte:
		return fmt.Sprintf("[]byte %s", value)
	case time.Time:
		return fmt.Sprintf("%T %d", value, value.Unix())
	default:
		return fmt.Sprintf("%T %v", value, value)
	}
}

func step(name string, results values) {
	line := values{"step": name}
	for key, result := range results {
		line[key] = shown(result)
	}
	check(json.NewEncoder(os.Stdout).Encode(line))
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func must[T any](value T, err error) T {
	check(err)
	return value
}

func declare(channel *amqp.Channel, queue, kind string, arguments amqp.Table) (amqp.Queue, error) {
	arguments["x-queue-type"] = kind
	return channel.QueueDeclare(queue, true, false, false, false, arguments)
}

// publisher is a channel in confirm mode. Not by deferred confirms: those of 1.5, which bookworm has, miss one that comes early.
type publisher struct {
	channel  *amqp.Channel
	confirms <-chan amqp.Confirmation
}

func (p publisher) publish(queue, body, expiration string) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	check(p.channel.PublishWithContext(ctx, "", queue, true, false, amqp.Publishing{
		ContentType: "text/plain", DeliveryMode: amqp.Persistent, Priority: 3, MessageId: body, Timestamp: time.Unix(1_600_000_000, 0),
		Expiration: expiration, Body: []byte(body),
		Headers: amqp.Table{
			"text": "zwölf", "int": int32(7), "long": int64(1) << 40, "bool": true,
			"list": []interface{}{int32(1), "two"}, "table": amqp.Table{"deep": "er"},
		},
	}))
	if confirmed := <-p.confirms; !confirmed.Ack {
		panic(body + " was not confirmed")
	}
}

// consume takes count deliveries, each settled by settle.
func consume(channel *amqp.Channel, queue string, count int, settle func(amqp.Delivery, int) error) []values {
	deliveries := must(channel.Consume(queue, queue, false, false, false, false, nil))
	taken := []values{}
	for delivery := range deliveries {
		taken = append(taken, values{
			"body": delivery.Body, "exchange": delivery.Exchange, "key": delivery.RoutingKey, "redelivered": delivery.Redelivered,
			"content_type": delivery.ContentType, "delivery_mode": delivery.DeliveryMode, "priority": delivery.Priority,
			"message_id": delivery.MessageId, "timestamp": delivery.Timestamp, "expiration": delivery.Expiration,
			"headers": delivery.Headers,
		})
		check(settle(delivery, len(taken)))
		if len(taken) == count {
			break
		}
	}
	check(channel.Cancel(queue, false))
	return taken
}

func refusal(err error) values {
	var refused *amqp.Error
	if !errors.As(err, &refused) {
		panic(fmt.Sprintf("not refused: %v", err))
	}
	return values{"code": refused.Code, "text": refused.Reason, "server": refused.Server}
}

func main() {
	url, kind := os.Args[1], os.Args[2]
	connection := must(amqp.Dial(url))
	first, second := must(connection.Channel()), must(connection.Channel())
	step("connect", values{
		"server": connection.Properties, "frame_max": connection.Config.FrameSize, "channel_max": connection.Config.ChannelMax,
		"heartbeat": connection.Config.Heartbeat.String()})

	check(first.ExchangeDeclare("dead", "direct", true, false, false, false, nil))
	queues := []amqp.Queue{
		must(declare(first, "graves", kind, amqp.Table{})),
		must(declare(first, "dead letters", kind, amqp.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "graves"})),
		must(declare(first, "work", kind, amqp.Table{"x-dead-letter-exchange": "dead"})),
		must(declare(first, "brief", kind, amqp.Table{"x-dead-letter-exchange": "dead", "x-dead-letter-routing-key": "late"})),
	}
	declared := []values{}
	for _, queue := range queues {
		declared = append(declared, values{"queue": queue.Name, "messages": queue.Messages, "consumers": queue.Consumers})
	}
	for _, key := range []string{"work", "late"} {
		check(first.QueueBind("dead letters", key, "dead", false, nil))
	}
	step("declare", values{"queues": declared})

	check(first.Confirm(false))
	publisher := publisher{first, first.NotifyPublish(make(chan amqp.Confirmation, 1))}
	returns := first.NotifyReturn(make(chan amqp.Return, 1))
	confirmed := []interface{}{}
	for _, body := range []string{"acked", "nacked", "rejected", "requeued"} {
		publisher.publish("work", body, "")
		confirmed = append(confirmed, body)
	}
	publisher.publish("nowhere", "unroutable", "")
	returned := <-returns
	step("publish", values{"confirmed": confirmed, "returned": values{
		"code": returned.ReplyCode, "text": returned.ReplyText, "key": returned.RoutingKey, "body": returned.Body}})

	check(first.Qos(10, 0, false))
	step("consume", values{"deliveries": consume(first, "work", 5, func(delivery amqp.Delivery, _ int) error {
		switch body := string(delivery.Body); {
		case body == "nacked":
			return delivery.Nack(false, false)
		case body == "rejected":
			return delivery.Reject(false)
		case body == "requeued" && !delivery.Redelivered:
			return delivery.Nack(false, true)
		default:
			return delivery.Ack(false)
		}
	})})

	step("dead letters", values{"deliveries": consume(first, "dead letters", 3, func(delivery amqp.Delivery, count int) error {
		if count == 2 {
			defer publisher.publish("brief", "late", "50")
		}
		if string(delivery.Body) == "nacked" {
			return delivery.Nack(false, false)
		}
		return delivery.Ack(false)
	})})

	step("second death", values{"deliveries": consume(first, "graves", 1, func(delivery amqp.Delivery, _ int) error {
		return delivery.Ack(false)
	})})

	_, found, err := first.Get("work", false)
	check(err)
	step("get", values{"empty": !found})

	_, err = declare(second, "work", kind, amqp.Table{"x-dead-letter-exchange": "other"})
	refusals := []values{refusal(err)}
	second = must(connection.Channel())
	_, err = second.QueueDeclarePassive("missing", true, false, false, false, nil)
	refusals = append(refusals, refusal(err))
	step("refused", values{"refusals": refusals})

	messages := values{}
	for _, queue := range queues {
		messages[queue.Name] = must(first.QueueDelete(queue.Name, false, false, false))
	}
	check(first.ExchangeDelete("dead", false, false))
	step("delete", values{"messages": messages})

	check(first.Close())
	check(connection.Close())
	step("close", nil)
}
