// Returns each message of `work`, always, until one has died into `dead`: node loops.js URL.
const amqplib = require('amqplib');
const { step } = require('./output.js');

async function main() {
  const connection = await amqplib.connect(process.argv[2]);
  const channel = await connection.createChannel();
  await channel.prefetch(10);
  const deliveries = [];
  let returned;
  await channel.consume('work', (message) => {
    const { content, fields, properties } = message;
    const waited = returned === undefined ? null : performance.now() - returned;
    deliveries.push({ body: content, key: fields.routingKey, redelivered: fields.redelivered, headers: properties.headers, waited });
    returned = performance.now();
    channel.nack(message, false, true);
  });
  const dead = await new Promise((resolve) => { channel.consume('dead', resolve, { noAck: true }); });
  step('deliveries', { deliveries });
  step('dead', { deliveries: [{ body: dead.content, headers: dead.properties.headers }] });
  await connection.close();
}

main();
