//! What needs a real broker, and a client whose frames are as they are told, or whose pace no interpreter keeps up with. All else of real brokers
//! is in `tests/clients`. `make broker` starts the oldest and the newest supported RabbitMQ and runs all of it on both:
//!
//! - `sessions`: many connections, large bodies, small frames · `heartbeats`: idle clients, and legs that are held back
//! - `hostile`: clients that are slow or mean: bounds hold, and nothing is left behind
//! - `drain`: SIGTERM, what may hold up the end of the program, and for how long
//!
//! The helpers: `lab` (ways of a test, waiting), `node` (a broker, and what an operator does there), `proxy` (one in this process),
//! `program` (one of its own), `raw` (a client that sends frames as they are told); of `tests/support`: `relay` (a cable that can be cut or
//! jammed), `connection` and `calls` (AMQP), `running` (a process), `application`, `admin`, `http`, `ctl` and `door` (rabbitmqctl),
//! `environment`, `port`. What a dead letter looks like, and where it goes, is proven by `tests/differential`.

#[path = "../support/admin.rs"]
mod admin;
#[path = "../support/application.rs"]
mod application;
#[allow(dead_code)] // tests/faults uses the rest
#[path = "../support/calls.rs"]
mod calls;
#[allow(dead_code)] // tests/faults uses the rest
#[path = "../support/connection.rs"]
mod connection;
#[path = "../support/ctl.rs"]
mod ctl;
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
mod node;
#[path = "../support/port.rs"]
mod port;
mod program;
mod proxy;
mod raw;
#[allow(dead_code)] // tests/faults uses the rest
#[path = "../support/relay.rs"]
mod relay;
#[path = "../support/running.rs"]
mod running;
mod sessions;
