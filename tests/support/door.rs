//! Erlang that a node evaluates, through a port that it opens for that (tests/lab/door.erl). To start a rabbitmqctl takes a second of a processor.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::ctl;

const PROGRAM: &str = include_str!("../lab/door.erl");

/// After which an answer counts as never coming: a vhost with a million messages goes slowly.
const PATIENCE: Duration = Duration::from_secs(300);

/// The ways into one node. Each evaluates one program after another; who finds none that is free has one more opened.
#[derive(Debug)]
pub(crate) struct Door {
    /// rabbitmqctl for that node: the program and its first words.
    ctl: Vec<String>,
    free: Arc<Mutex<Vec<TcpStream>>>,
}

impl Door {
    pub(crate) fn new(ctl: Vec<String>) -> Door {
        let free = Arc::default();
        Door { ctl, free }
    }

    /// What the node says to these expressions.
    pub(crate) async fn eval(&self, program: &str) -> Result<String, String> {
        let way = match self.free() {
            Some(way) => Some(way),
            None => self.open().await?,
        };
        let answer = match way {
            Some(way) => self.ask(way, program.to_owned()).await?,
            None => self.run(program).await?,
        };
        let failed = ["'EXIT'", "badmatch"]
            .iter()
            .any(|word| answer.contains(word));
        if failed || answer.starts_with("{error") {
            return Err(format!("{program}: {answer}"));
        }
        Ok(answer)
    }

    fn free(&self) -> Option<TcpStream> {
        let mut free = self.free.lock().expect("no panic");
        std::iter::from_fn(|| free.pop()).find(is_open)
    }

    /// None: the node is elsewhere.
    async fn open(&self) -> Result<Option<TcpStream>, String> {
        let port = self.run(PROGRAM).await?;
        let port: u16 = port.parse().map_err(|_| format!("no port: {port}"))?;
        Ok(TcpStream::connect(("127.0.0.1", port)).ok())
    }

    async fn run(&self, program: &str) -> Result<String, String> {
        let (name, first) = self.ctl.split_first().ok_or("no rabbitmqctl")?;
        let mut command = Command::new(name);
        command.args(first).args(["--quiet", "eval", program]);
        ctl::run(command).await
    }

    async fn ask(&self, mut way: TcpStream, program: String) -> Result<String, String> {
        let free = self.free.clone();
        let asked = tokio::task::spawn_blocking(move || {
            let answer = ask(&mut way, &program)?;
            free.lock().expect("no panic").push(way);
            Ok::<_, io::Error>(answer)
        });
        let answer = asked.await.map_err(|error| error.to_string())?;
        answer.map_err(|error| format!("the node's door: {error}"))
    }
}

/// A node that has ended has closed its end.
fn is_open(way: &TcpStream) -> bool {
    let peeked = way.set_nonblocking(true).and_then(|()| way.peek(&mut [0]));
    let is_silent = peeked.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock);
    is_silent && way.set_nonblocking(false).is_ok()
}

fn ask(way: &mut TcpStream, program: &str) -> io::Result<String> {
    way.set_read_timeout(Some(PATIENCE))?;
    way.write_all(&(program.len() as u32).to_be_bytes())?;
    way.write_all(program.as_bytes())?;
    let mut size = [0; 4];
    way.read_exact(&mut size)?;
    let mut answer = vec![0; u32::from_be_bytes(size) as usize];
    way.read_exact(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}
