<?php
// A worker of Symfony Messenger, without the rest of Symfony: messenger.php URL. See test_frameworks.py.
require_once 'Symfony/Component/Messenger/Bridge/Amqp/autoload.php';
require_once 'Symfony/Component/EventDispatcher/autoload.php';

use Symfony\Component\EventDispatcher\EventDispatcher;
use Symfony\Component\Messenger\Bridge\Amqp\Transport\{AmqpReceivedStamp, AmqpStamp, AmqpTransport, Connection};
use Symfony\Component\Messenger\{Envelope, MessageBus, Worker};
use Symfony\Component\Messenger\Exception\UnrecoverableExceptionInterface;
use Symfony\Component\Messenger\EventListener\AddErrorDetailsStampListener;
use Symfony\Component\Messenger\Handler\HandlersLocator;
use Symfony\Component\Messenger\Middleware\HandleMessageMiddleware;
use Symfony\Component\Messenger\Stamp\{DelayStamp, ErrorDetailsStamp};
use Symfony\Component\Messenger\Transport\Serialization\SerializerInterface;

class ReturningTransport extends AmqpTransport
{
    public function __construct(private Connection $amqp, ?SerializerInterface $serializer = null)
    {
        parent::__construct($amqp, $serializer);
    }

    public function reject(Envelope $envelope): void
    {
        $received = $envelope->last(AmqpReceivedStamp::class);
        $message = $received->getAmqpEnvelope();
        $error = $envelope->last(ErrorDetailsStamp::class);
        $verdict = ['reason' => $error?->getExceptionMessage()];
        $this->amqp->queue('any')->unbind('dlx-proxy.verdict', (string) $message->getDeliveryTag(), $verdict);
        $dies = is_a($error?->getExceptionClass(), UnrecoverableExceptionInterface::class, true);
        $this->amqp->nack($message, $received->getQueueName(), $dies ? AMQP_NOPARAM : AMQP_REQUEUE);
    }
}

class Job
{
    public function __construct(public string $name) {}
}

$say = fn (string $word) => print $word.' '.(int) (1000 * microtime(true))."\n";
$handler = function (Job $job) use ($say) {
    $say($job->name);
    if ($job->name == 'fails') {
        throw new Exception('no address');
    }
};
$exchange = ['name' => 'jobs', 'type' => 'x-delayed-message', 'arguments' => ['x-delayed-type' => 'fanout']];
$transport = new ReturningTransport(Connection::fromDsn($argv[1], ['exchange' => $exchange, 'queues' => ['work' => []]]));
$events = new EventDispatcher();
$events->addSubscriber(new AddErrorDetailsStampListener());
$transport->setup();
$say('begun');
$transport->send(new Envelope(new Job('fails')));
$transport->send(new Envelope(new Job('late'), [new AmqpStamp(null, AMQP_NOPARAM, ['headers' => ['x-delay' => 500]])]));
$transport->send(new Envelope(new Job('delayed'), [new DelayStamp(500)]));
(new Worker([$transport], new MessageBus([new HandleMessageMiddleware(new HandlersLocator(['*' => [$handler]]))]), $events))->run(['sleep' => 10000]);
