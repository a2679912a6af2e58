// The script of README.md by amqplib.
const amqplib = require('amqplib');
const { once } = require('node:events');
const { step } = require('./output.js');

const PROPERTIES = ['contentType', 'deliveryMode', 'priority', 'messageId', 'timestamp', 'expiration', 'headers'];
const [url, kind] = process.argv.slice(2);

const declare = (channel, queue, options) =>
  channel.assertQueue(queue, { durable: true, ...options, arguments: { 'x-queue-type': kind } });

// Resolves when it is confirmed.
const publish = (channel, queue, body, options) =>
  new Promise((resolve, reject) => {
    const headers = { text: 'zwölf', int: 7, long: 2 ** 40, bool: true, list: [1, 'two'], table: { deep: 'er' } };
    const properties = { contentType: 'text/plain', persistent: true, priority: 3, messageId: body, timestamp: 1_600_000_000, headers };
    channel.publish('', queue, Buffer.from(body), { mandatory: true, ...properties, ...options }, (error) => (error ? reject(error) : resolve(body)));
  });

// `count` deliveries, each settled by `settle`.
async function consume(channel, queue, count, settle) {
  const deliveries = [];
  let done;
  const complete = new Promise((resolve) => { done = resolve; });
  const { consumerTag } = await channel.consume(queue, (message) => {
    const { content, fields, properties } = message;
    const described = { body: content, exchange: fields.exchange, key: fields.routingKey, redelivered: fields.redelivered };
    for (const name of PROPERTIES) described[name] = properties[name];
    deliveries.push(described);
    settle(message, deliveries.length);
    if (deliveries.length === count) done();
  });
  await complete;
  await channel.cancel(consumerTag);
  return deliveries;
}

// The error that closes the channel.
async function refusal(channel, attempt) {
  const error = once(channel, 'error');
  await attempt.catch(() => {});
  const [{ code, message }] = await error;
  return { code, message };
}

async function main() {
  const connection = await amqplib.connect(url);
  const first = await connection.createConfirmChannel();
  let second = await connection.createChannel();
  step('connect', { server: connection.connection.serverProperties });

  await first.assertExchange('dead', 'direct', { durable: true });
  const queues = [
    await declare(first, 'graves'),
    await declare(first, 'dead letters', { deadLetterExchange: '', deadLetterRoutingKey: 'graves' }),
    await declare(first, 'work', { deadLetterExchange: 'dead' }),
    await declare(first, 'brief', { deadLetterExchange: 'dead', deadLetterRoutingKey: 'late' }),
  ];
  for (const key of ['work', 'late']) await first.bindQueue('dead letters', 'dead', key);
  step('declare', { queues });

  const back = once(first, 'return');
  const confirmed = await Promise.all(['acked', 'nacked', 'rejected', 'requeued'].map((body) => publish(first, 'work', body)));
  await publish(first, 'nowhere', 'unroutable');
  const [{ fields, content }] = await back;
  step('publish', { confirmed, returned: { code: fields.replyCode, text: fields.replyText, key: fields.routingKey, body: content } });

  await first.prefetch(10);
  const worked = await consume(first, 'work', 5, (message) => {
    const body = message.content.toString();
    if (body === 'nacked') first.nack(message, false, false);
    else if (body === 'rejected') first.reject(message, false);
    else if (body === 'requeued' && !message.fields.redelivered) first.nack(message, false, true);
    else first.ack(message);
  });
  step('consume', { deliveries: worked });

  let late;
  const dead = await consume(first, 'dead letters', 3, (message, count) => {
    if (message.content.toString() === 'nacked') first.nack(message, false, false);
    else first.ack(message);
    if (count === 2) late = publish(first, 'brief', 'late', { expiration: 50 });
  });
  await late;
  step('dead letters', { deliveries: dead });

  step('second death', { deliveries: await consume(first, 'graves', 1, (message) => first.ack(message)) });

  step('get', { empty: (await first.get('work')) === false });

  const refusals = [await refusal(second, declare(second, 'work', { deadLetterExchange: 'other' }))];
  second = await connection.createChannel();
  refusals.push(await refusal(second, second.checkQueue('missing')));
  step('refused', { refusals });

  const messages = {};
  for (const { queue } of queues) messages[queue] = (await first.deleteQueue(queue)).messageCount;
  await first.deleteExchange('dead');
  step('delete', { messages });

  await first.close();
  await connection.close();
  step('close');
}

main();
