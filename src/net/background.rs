//! A thread with a runtime and a poller of its own. Beside those of the sessions it is nicer: where both want the processor it yields, so that
//! clients hardly notice its work.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::thread;

use tokio::runtime::{Builder, Handle};
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

/// Added niceness: under load, a tenth of a session thread's share.
pub const NICER: i32 = 10;
/// A third, for work with deadlines.
pub const NICE: i32 = 5;

/// Clones share one thread, which ends with the last clone.
#[derive(Clone, Debug)]
pub struct Background {
    runtime: Handle,
    _running: Arc<watch::Sender<()>>,
}

// === impl Background ===

impl Background {
    /// `nicer`: added niceness.
    ///
    /// # Errors
    /// The system has no more threads or pollers.
    pub fn start(name: &str, nicer: i32) -> io::Result<Background> {
        let (running, mut ended) = watch::channel(());
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || {
                // On Linux it is the calling thread's. One that may not change it works all the same.
                let _ = rustix::process::nice(nicer);
                runtime.block_on(async { while ended.changed().await.is_ok() {} });
                runtime.shutdown_background();
            })?;
        Ok(Background {
            runtime: handle,
            _running: Arc::new(running),
        })
    }

    pub fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// Runs a future there, with its descriptors on that thread's poller. Dropping the handle
    /// cancels it.
    pub fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> AbortOnDropHandle<T> {
        AbortOnDropHandle::new(self.runtime.spawn(work))
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::{Background, NICER};

    #[tokio::test]
    async fn work_is_done_on_the_thread_and_given_up_with_its_handle() {
        let background = Background::start("aside", NICER).unwrap();
        let at = background.run(async { thread::current().name().map(str::to_owned) });
        assert_eq!(at.await.unwrap().as_deref(), Some("aside"));

        let (sender, receiver) = tokio::sync::oneshot::channel::<()>();
        drop(background.run(async move {
            std::future::pending::<()>().await;
            drop(sender);
        }));
        assert!(receiver.await.is_err(), "the work still has its sender");
    }
}
