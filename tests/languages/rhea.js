// AMQP 1.0 by rhea: node rhea.js URL [BODY]. The URL is one of AMQP 0-9-1, with a vhost; the queue `tests` is there, classic and empty. With a body it
// sends that message, and nothing else.
const { on, once } = require('node:events');
const { setImmediate } = require('node:timers/promises');
const rhea = require('rhea');
const { step } = require('./output.js');

const url = new URL(process.argv[2]);
const vhost = decodeURIComponent(url.pathname.slice(1));

// Whatever of these events comes first.
const first = (emitter, ...events) =>
  Promise.race(events.map(async (event) => ({ event, context: (await once(emitter, event))[0] })));

const message = (name, body) => ({
  durable: true, priority: 3, message_id: name, correlation_id: rhea.types.wrap_ulong(7), subject: 'tests', content_type: 'text/plain',
  creation_time: new Date(1_600_000_000_000), message_annotations: { 'x-note': 'kept' },
  application_properties: {
    text: 'zwölf', int: rhea.types.wrap_int(7), long: rhea.types.wrap_long(2 ** 40), double: 1.5, bool: true,
    uuid: rhea.types.wrap_uuid(Buffer.alloc(16, 7)), char: rhea.types.wrap_char(120), time: rhea.types.wrap_timestamp(1_600_000_000_000),
  },
  body,
});

async function main() {
  const connection = rhea.create_container({ id: 'tests' }).connect({
    host: url.hostname, port: Number(url.port), username: url.username, password: url.password, hostname: `vhost:${vhost}`,
    reconnect: false,
  });
  const { event, context } = await first(connection, 'connection_open', 'protocol_error', 'disconnected');
  if (event !== 'connection_open') {
    step('connect', { event, error: context.message });
    return;
  }
  const { container_id, max_frame_size, channel_max, idle_time_out, offered_capabilities, properties } = connection.remote.open;
  step('connect', { container_id, max_frame_size, channel_max, idle_time_out, offered_capabilities, properties });

  const sender = connection.open_sender('/queues/tests');
  await once(sender, 'sendable');
  const accepted = [];
  const only = process.argv[3];
  for (const name of only ? [only] : ['accepted', 'rejected', 'released', 'large']) {
    sender.send(message(name, name === 'large' ? 'large '.repeat(100_000) : name));
    await once(sender, 'accepted');
    accepted.push(name);
  }
  step('send', { accepted });
  if (only) return connection.close();

  const receiver = connection.open_receiver({ source: '/queues/tests', autoaccept: false });
  const received = [];
  for await (const [{ message: { body, ...rest }, delivery }] of on(receiver, 'message')) {
    received.push({ ...rest, size: body.length, body: body.slice(0, 8) });
    if (body === 'rejected') delivery.reject({ condition: 'tests:no', description: 'not wanted' });
    else if (body === 'released' && received.length === 3) delivery.release();
    else delivery.accept();
    if (received.length === 5) break;
    await setImmediate(); // rhea 3.0.5 gives neighbours that are settled in one turn the outcome of the first
  }
  step('receive', { received });

  receiver.close();
  await once(receiver, 'receiver_close');
  sender.close();
  await once(sender, 'sender_close');
  step('detach');

  connection.open_sender('/queues/missing');
  const missing = await first(connection, 'sender_error', 'session_error');
  const { condition, description } = (missing.context.sender || missing.context.session).error;
  step('refused', { event: missing.event, condition, description });

  connection.close();
  await once(connection, 'connection_close');
  step('close');
}

main();
