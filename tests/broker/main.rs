//! What only a real broker can judge; `make broker` starts the oldest and the newest supported RabbitMQ and runs all of it on both:
//!
//! - `reasons`: every way to die, by lapin, for classic and quorum queues, and what the dead letter looks like
//! - `targets`: where dead letters go: with key and without, the default exchange, a missing exchange
//! - `routing`: exchanges and bindings drawn at random lead where the proxy believes they do
//! - `faults`: a publisher that is killed, blocked or away, a client that vanishes: nothing is lost
//! - `alarms`: what clients hear of one, by the capability that they announced
//! - `multiple`: acks, nacks and rejects in an order drawn at random close a channel exactly when they do so without the proxy
//! - `sessions`: many connections, large bodies, small frames · `heartbeats`: idle clients, and legs that are held back
//! - `management`: what policies of the broker's add, read from its management API
//! - `away`: no broker at start, and a vhost in which the proxy's user has no rights
//! - `process`: the program itself, from its first line to SIGTERM · `drain`: what may hold up its end, and for how long
//!
//! The helpers: `lab` (brokers, vhosts, waiting), `proxy` (one in this process), `program` (one of its own), `scene` (lapin and the
//! queues of a test), `dead_letter` (what one must look like), `raw` (a client that sends frames as they are told), `relay` (a cable
//! that can be cut or jammed), `random` (numbers by a seed).

mod alarms;
mod away;
mod dead_letter;
mod drain;
mod faults;
mod heartbeats;
mod lab;
mod management;
mod multiple;
mod process;
mod program;
mod proxy;
mod random;
mod raw;
mod reasons;
mod relay;
mod routing;
mod scene;
mod sessions;
mod targets;
