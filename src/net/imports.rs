//! An import as a task: it has a connection of its own, in the name of whoever asked for it.

use std::future::Future;
use std::task::Context;

use tokio::sync::mpsc;

use crate::import::{self, Import, Imported, Settings};
use crate::machine::Now;

use super::clock::Clock;
use super::drive::{Drive, Outlet};
use super::walks::Walks;

/// Says how it ended.
struct Told(mpsc::Sender<Imported>);

impl Walks {
    /// Imports messages. `None`: it broke off, which is a bug of the proxy.
    pub async fn import(
        &self,
        settings: Settings,
        stopped: impl Future<Output = ()>,
    ) -> Option<Imported> {
        // Nothing is told to it.
        let (_sender, inbox) = mpsc::channel(1);
        let (told, mut ended) = mpsc::channel(1);
        let import = Import::new(settings, self.clock.now());
        let connector = self.dialer.connector(|_| ());
        let mut drive = Drive::link(import, Told(told), inbox, self.clock, connector);
        drive.run(stopped).await;
        ended.try_recv().ok()
    }
}

impl Outlet<Import> for Told {
    fn dispatch(&mut self, _: &Import, fx: &mut import::Effects, _: Now, _: &mut Context<'_>) {
        if let Some(imported) = fx.out.take() {
            let _ = self.0.try_send(imported);
        }
    }
}
