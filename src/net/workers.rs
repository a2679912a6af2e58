//! The threads that sessions run on. Each has a runtime and a poller of its own, so what arrives for a connection wakes only the thread that
//! serves it. Where threads share a poller, one thread waits in it for all, and each wake-up of a task costs the wake-up of a thread, too.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

use tokio::net::{TcpStream, UnixStream};
use tokio::runtime::Handle;

use super::background::Background;
use super::stream::Plain;

/// Clones share the threads, which end with the last clone.
#[derive(Clone, Debug)]
pub struct Workers {
    all: Arc<[Worker]>,
}

#[derive(Debug)]
struct Worker {
    runtime: Handle,
    seat: Seat,
    /// None: the calling runtime's.
    _thread: Option<Background>,
}

/// Hold it as long as the session.
pub type Seat = Arc<()>;

// === impl Workers ===

impl Workers {
    /// The first thread is the calling runtime's, which also runs the links.
    ///
    /// # Errors
    /// The system has no more threads or pollers.
    pub fn start(threads: usize) -> io::Result<Workers> {
        let mut all = vec![Worker::new(Handle::current(), None)];
        for number in 1..threads {
            let thread = Background::start(&format!("sessions-{number}"), 0)?;
            all.push(Worker::new(thread.runtime().clone(), Some(thread)));
        }
        Ok(Workers { all: all.into() })
    }

    pub async fn answer(&self) {
        for worker in self.all.iter() {
            // An error: the thread has ended, and with it what it could stand still with.
            drop(worker.runtime.spawn(async {}).await);
        }
    }

    pub fn idlest(&self) -> (Handle, Seat) {
        let workers = self.all.iter();
        let idlest = workers.min_by_key(|worker| Arc::strong_count(&worker.seat));
        idlest.map_or_else(
            || (Handle::current(), Seat::default()),
            |worker| (worker.runtime.clone(), worker.seat.clone()),
        )
    }
}

impl Worker {
    fn new(runtime: Handle, thread: Option<Background>) -> Worker {
        Worker {
            runtime,
            seat: Seat::default(),
            _thread: thread,
        }
    }
}

/// Moves a connection to the calling thread's poller.
///
/// # Errors
/// The system has no room there.
pub fn adopt(stream: Plain) -> io::Result<Plain> {
    Ok(match stream {
        Plain::Left(stream) => Plain::Left(TcpStream::from_std(stream.into_std()?)?),
        Plain::Right(stream) => Plain::Right(UnixStream::from_std(stream.into_std()?)?),
    })
}

/// The same in place.
///
/// # Errors
/// The system has no room or descriptor.
pub fn fetch(stream: &mut Plain) -> io::Result<()> {
    let same = match stream {
        Plain::Left(stream) => {
            let same = stream.as_fd().try_clone_to_owned()?;
            Plain::Left(TcpStream::from_std(same.into())?)
        }
        Plain::Right(stream) => {
            let same = stream.as_fd().try_clone_to_owned()?;
            Plain::Right(UnixStream::from_std(same.into())?)
        }
    };
    *stream = same;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::Workers;

    #[tokio::test]
    async fn sessions_go_where_the_fewest_are() {
        let workers = Workers::start(2).unwrap();
        let (first, seat) = workers.idlest();
        let (second, other) = workers.idlest();
        assert_ne!(first.id(), second.id());
        drop(other);
        let (third, _other) = workers.idlest();
        assert_eq!(third.id(), second.id());
        drop(seat);
        assert_eq!(workers.idlest().0.id(), first.id());
    }

    #[tokio::test]
    async fn what_is_spawned_there_runs_on_its_thread() {
        let workers = Workers::start(2).unwrap();
        let (_, _seat) = workers.idlest();
        let (runtime, _other) = workers.idlest();
        let thread = runtime.spawn(async { std::thread::current().name().map(str::to_owned) });
        assert_eq!(thread.await.unwrap().as_deref(), Some("sessions-1"));
    }

    #[tokio::test]
    async fn the_threads_end_with_the_last_clone() {
        let workers = Workers::start(2).unwrap();
        let (_, _seat) = workers.idlest();
        let (runtime, _other) = workers.idlest();
        let task = runtime.spawn(std::future::pending::<()>());
        drop(workers);
        assert!(task.await.unwrap_err().is_cancelled());
    }
}
