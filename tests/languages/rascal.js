// A worker of Rascal: node rascal.js URL. See test_frameworks.py.
'use strict'

const { promisify } = require('node:util')
const rascal = require('rascal')

function verdicts(session) {
  const open = session._open
  session._open = (channel, ...others) => {
    session.verdict = (message, said, done) => {
      if (!('dlx_proxy' in channel.connection.serverProperties)) return done()
      channel.unbindQueue('any', 'dlx-proxy.verdict', String(message.fields.deliveryTag), said, done)
    }
    open(channel, ...others)
  }
  return session
}

const say = (word) => console.log(word, Date.now())

async function main(url) {
  const broker = await promisify(rascal.Broker.create)(rascal.withDefaultConfig({
    vhosts: {
      v1: {
        connection: { url },
        exchanges: { later: { type: 'x-delayed-message', options: { arguments: { 'x-delayed-type': 'direct' } } } },
        queues: { work: {}, slow: {} },
        bindings: ['later[work] -> work'],
        publications: { now: { exchange: '' }, later: { exchange: 'later', routingKey: 'work' } },
        subscriptions: { work: { queue: 'work' }, slow: { queue: 'slow' } }
      }
    }
  }))
  broker.on('error', (problem) => console.error(problem))
  const work = verdicts(await promisify(broker.subscribe)('work'))
  work.on('message', (message, job, ackOrNack) => {
    say(job)
    if (job !== 'fails') return ackOrNack()
    const error = new Error('no address')
    work.verdict(message, { reason: error.message }, () => ackOrNack(error, { strategy: 'nack', requeue: true }))
  })
  const hung = []
  const slow = await promisify(broker.subscribe)('slow')
  slow.on('message', (message, job, ackOrNack) => {
    say(job)
    if (hung.push(ackOrNack) === 2) for (const each of hung) each() // It is delivered again.
  })
  say('begun')
  const publish = promisify(broker.publish)
  await publish('now', 'fails', 'work')
  await publish('now', 'hangs', 'slow')
  await publish('later', 'late', { options: { headers: { 'x-delay': 500 } } })
}

main(process.argv[2])
