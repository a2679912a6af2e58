//! What only a real broker can judge; `make broker` starts the oldest and the newest supported RabbitMQ and runs all of it on both:
//!
//! - `routing`: exchanges and bindings drawn at random lead where the proxy believes they do
//! - `vanishing`: a client that is gone while its rejects are withheld; all other faults are in `tests/faults`
//! - `alarms`: what clients hear of one, by the capability that they announced
//! - `multiple`: acks, nacks and rejects in an order drawn at random close a channel exactly when they do so without the proxy
//! - `sessions`: many connections, large bodies, small frames · `heartbeats`: idle clients, and legs that are held back
//! - `management`: what policies of the broker's add, read from its management API
//! - `waiting`: what waits for a retry, in delay queues that the management API tells
//! - `hostile`: clients that are slow or mean: bounds hold, and nothing is left behind
//! - `away`: no broker at start, and a vhost in which the proxy's user has no rights
//! - `outages`: alarms, and times without the publisher's link, that outlast every patience
//! - `process`: the program itself, from its first line to SIGTERM · `drain`: what may hold up its end, and for how long
//!
//! The helpers: `lab` (ways of a test, waiting), `node` (a broker, and what an operator does there), `proxy` (one in this process),
//! `program` (one of its own), `scene` (lapin and the queues of a test), `raw` (a client that sends frames as they are told), `random`
//! (numbers by a seed); of `tests/support`: `relay` (a cable that can be cut or jammed), `connection` and `calls` (AMQP), `running` (a
//! process), `application`, `admin`, `http`, `ctl` and `door` (rabbitmqctl), `environment`, `port`. What a dead letter looks like, and
//! where it goes, is proven by `tests/differential`.

#[path = "../support/admin.rs"]
mod admin;
mod alarms;
#[path = "../support/application.rs"]
mod application;
mod away;
#[path = "../support/calls.rs"]
mod calls;
#[path = "../support/connection.rs"]
mod connection;
#[path = "../support/ctl.rs"]
mod ctl;
mod delay_queues;
#[path = "../support/door.rs"]
mod door;
mod drain;
#[path = "../support/environment.rs"]
mod environment;
mod heartbeats;
mod hostile;
#[path = "../support/http.rs"]
mod http;
mod lab;
mod management;
mod multiple;
mod node;
mod outages;
#[path = "../support/port.rs"]
mod port;
mod process;
mod program;
mod proxy;
mod random;
mod raw;
#[allow(dead_code)] // tests/faults uses the rest
#[path = "../support/relay.rs"]
mod relay;
mod routing;
#[path = "../support/running.rs"]
mod running;
mod scene;
mod sessions;
mod vanishing;
mod waiting;
