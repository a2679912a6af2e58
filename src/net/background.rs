//! A thread beside those of the sessions. Where both want the processor, this thread yields it to them, so that clients hardly notice its work.

use std::future::Future;
use std::io;
use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use super::workers;

/// What is added to a thread's niceness: a tenth of the share that a session thread gets when there is too little for all.
pub const NICER: i32 = 10;
/// A third of it, for what has to be answered in time all the same.
pub const NICE: i32 = 5;

/// Clones are the same thread; it ends with the last clone.
#[derive(Clone, Debug)]
pub struct Background {
    runtime: Handle,
    _running: Arc<watch::Sender<()>>,
}

// === impl Background ===

impl Background {
    /// Starts the thread, by so much nicer than the others.
    ///
    /// # Errors
    /// The system has no more threads or pollers for us.
    pub fn start(name: &str, nicer: i32) -> io::Result<Background> {
        let (running, ended) = watch::channel(());
        let runtime = workers::start_thread(name.to_owned(), ended, move || {
            // On Linux it is the calling thread's. One that may not change it works all the same.
            let _ = rustix::process::nice(nicer);
        })?;
        Ok(Background {
            runtime,
            _running: Arc::new(running),
        })
    }

    /// For tasks that go on though nobody waits for them.
    pub fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// Does something there: what it opens is on the poller of that thread. It is given up if the handle is dropped before.
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
