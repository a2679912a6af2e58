// Judges the first delivery of `work` COUNT times, and the one after a lost connection once: verdicts.js URL COUNT.
'use strict'

const amqp = require('amqplib')
const { step } = require('./output')

async function verdict(channel, message, said) { // { reason, error, 'delay-ms', dead, headers }
  if ('dlx_proxy' in channel.connection.serverProperties) {
    said = { ...said, error: said.error?.slice(0, 4096) }
    await channel.unbindQueue('any', 'dlx-proxy.verdict', String(message.fields.deliveryTag), said)
  }
}

async function reader(url) {
  const connection = await amqp.connect(url)
  const channel = await connection.createChannel()
  const lost = new Promise((resolve) => connection.on('close', resolve))
  for (const each of [connection, channel]) each.on('error', () => {})
  await channel.prefetch(1)
  await channel.assertQueue('work', { arguments: { 'x-dead-letter-exchange': '', 'x-dead-letter-routing-key': 'dead' } })
  const came = []
  let wake = () => {}
  await channel.consume('work', (message) => { came.push(message); wake() })
  const next = async () => {
    while (!came.length) await new Promise((resolve) => { wake = resolve })
    return came.shift()
  }
  return { connection, channel, lost, next }
}

async function main(url, count) {
  const before = await reader(url)
  const first = await before.next()
  for (let number = 0; number < count; number++) await verdict(before.channel, first, { reason: `number ${number}` })
  step('judged', {})
  await before.lost
  const { connection, channel, next } = await reader(url)
  channel.reject(await next(), false)
  const last = await next()
  await verdict(channel, last, { reason: 'no address', error: 'a trace'.repeat(100000), headers: { tenant: 7 } })
  channel.reject(last, false)
  await channel.close()
  await connection.close()
  step('done', {})
}

main(process.argv[2], Number(process.argv[3]))
