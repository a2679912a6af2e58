//! An import, and questions for rights, as tasks: each has a connection of its own, in the name of whoever asked for it.

use std::future::Future;
use std::task::Context;
use std::time::Duration;

use tokio::sync::mpsc;

use crate::amqp::ids::ShortStr;
use crate::import::{Import, Imported, Settings};
use crate::link::Login;
use crate::machine::{Effects, Machine, Now};
use crate::walk::{Answers, Failure, Readable};

use super::clock::Clock;
use super::drive::Outlet;
use super::walks::{Walks, with_nodes};

struct Told<T>(mpsc::Sender<T>);

impl Walks {
    /// Imports messages. `None`: it broke off, which is a bug of the proxy.
    pub async fn import(
        &self,
        settings: Settings,
        stopped: impl Future<Output = ()>,
    ) -> Option<Imported> {
        self.told(Import::new(settings, self.clock.now()), stopped)
            .await
    }

    /// Asks whether that user may read these queues, which takes so long at most.
    ///
    /// # Errors
    /// When the broker does not let the user in, or cannot be asked.
    pub async fn readable(
        &self,
        login: Login,
        queues: Vec<ShortStr>,
        within: Duration,
        stopped: impl Future<Output = ()>,
    ) -> Result<Answers, Failure> {
        let readable = Readable::new(login, queues, within, self.clock.now());
        let told = self.told(readable, stopped).await;
        with_nodes(&self.dialer.nodes, told.unwrap_or(Err(Failure::Silent)))
    }

    /// Runs a machine that is told nothing: what it has in the end.
    async fn told<M: Machine<Output = Option<T>>, T>(
        &self,
        machine: M,
        stopped: impl Future<Output = ()>,
    ) -> Option<T> {
        let (_sender, inbox) = mpsc::channel(1);
        self.run(machine, Told, inbox, stopped).await
    }
}

impl<M: Machine<Output = Option<T>>, T> Outlet<M> for Told<T> {
    fn dispatch(&mut self, _: &M, fx: &mut Effects<Option<T>>, _: Now, _: &mut Context<'_>) {
        if let Some(told) = fx.out.take() {
            let _ = self.0.try_send(told);
        }
    }
}
