//! The binary under a service manager: what it tells of itself, the socket that it takes over, and the limit that it finds.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use dlx_proxy::amqp::frame::PROTOCOL;

use super::proxy::{PATIENCE, Proxy, until};

/// Starts a proxy. `begin` is what a shell does before it becomes the program.
fn start(begin: &str, environment: &[(&str, &str)], stdin: Stdio) -> Proxy {
    let program = env!("CARGO_BIN_EXE_dlx-proxy");
    let script = format!("{begin} exec '{program}' run 3<&0 </dev/null");
    Proxy::start(
        Command::new("sh")
            .args(["-c", &script])
            .env_clear()
            .env("NO_COLOR", "1")
            .env("DLX_PROXY_LISTEN", "127.0.0.1:0")
            .env("DLX_PROXY_ADMIN", "127.0.0.1:0")
            .env("DLX_PROXY_UPSTREAM", "amqp://guest:guest@127.0.0.1:1")
            .env("DLX_PROXY_VHOSTS", "")
            .envs(environment.iter().copied())
            .stdin(stdin),
    )
}

/// What a service manager listens on.
struct Manager {
    socket: UnixDatagram,
    path: PathBuf,
}

impl Manager {
    fn new(test: &str) -> Manager {
        let name = format!("dlx-proxy-{}-{test}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let socket = UnixDatagram::bind(&path).expect("a socket");
        socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        Manager { socket, path }
    }

    fn name(&self) -> &str {
        self.path.to_str().expect("UTF-8")
    }

    /// What it is told next.
    fn heard(&self) -> String {
        let mut said = [0; 256];
        let length = self.socket.recv(&mut said);
        let length = length.expect("it is told something in time");
        String::from_utf8_lossy(&said[..length]).into_owned()
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        drop(std::fs::remove_file(&self.path));
    }
}

#[test]
fn systemd_is_told_when_the_proxy_listens_reloads_and_ends() {
    let manager = Manager::new("ends");
    let environment = [("NOTIFY_SOCKET", manager.name())];
    let mut proxy = start("", &environment, Stdio::null());
    let listening = proxy.line("listening leg=\"client\"");
    assert_eq!(manager.heard(), "READY=1\n");
    let address = listening.split("addr=").nth(1).expect("an address").trim();
    let address: SocketAddr = address.parse().expect("an address");
    TcpStream::connect(address).expect("it listens");

    proxy.signal("HUP");
    let reloading = manager.heard();
    assert!(
        reloading.starts_with("RELOADING=1\nMONOTONIC_USEC="),
        "{reloading}"
    );
    assert_eq!(manager.heard(), "READY=1\n");

    proxy.signal("TERM");
    assert_eq!(manager.heard(), "STOPPING=1\n");
    assert!(proxy.ended().success());
}

#[test]
fn systemd_is_told_again_and_again_that_the_proxy_lives() {
    let manager = Manager::new("lives");
    let environment = [
        ("NOTIFY_SOCKET", manager.name()),
        ("WATCHDOG_USEC", "60000"),
    ];
    let _proxy = start("", &environment, Stdio::null());
    for expected in ["READY=1\n", "WATCHDOG=1\n", "WATCHDOG=1\n", "WATCHDOG=1\n"] {
        assert_eq!(manager.heard(), expected);
    }
}

#[test]
fn a_socket_that_is_handed_over_is_listened_on() {
    let socket = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = socket.local_addr().expect("an address");
    // Somebody who came before the proxy did.
    let early = TcpStream::connect(address).expect("the system accepts");
    let begin = "LISTEN_PID=$$ LISTEN_FDS=1";
    let mut proxy = start(begin, &[], OwnedFd::from(socket).into());
    let line = proxy.line("listening leg=\"client\"");
    assert!(line.contains(&address.to_string()), "{line}");
    // There is no broker: whoever was accepted reads the end.
    early.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let read = std::io::copy(&mut &early, &mut std::io::sink());
    assert!(read.is_ok_and(|bytes| bytes == 0));
}

#[test]
fn what_is_no_listening_socket_is_refused() {
    let begin = "LISTEN_PID=$$ LISTEN_FDS=1";
    let mut proxy = start(begin, &[], Stdio::null());
    proxy.line("cannot take the socket of the service manager");
    assert_eq!(proxy.ended().code(), Some(1));
}

#[test]
fn the_log_says_how_many_clients_have_room() {
    let begin = "ulimit -Sn 200; ulimit -Hn 900;";
    let warns = |set: &[(&str, &str)]| {
        let mut proxy = start(begin, set, Stdio::null());
        let first = proxy.line("");
        proxy.line("listening leg=\"admin\"");
        let mut lines = proxy.log().into_iter();
        let line = lines.find(|line| line.contains("file descriptors"));
        (first, line)
    };
    let (first, line) = warns(&[]);
    assert!(first.contains("clients=354"), "{first}");
    assert_eq!(line, None, "nobody has asked for more");
    let (first, line) = warns(&[("DLX_PROXY_MAX_CONNECTIONS", "300")]);
    assert!(first.contains("clients=300"), "{first}");
    assert_eq!(line, None);
    let (first, line) = warns(&[("DLX_PROXY_MAX_CONNECTIONS", "20000")]);
    assert!(first.contains("clients=354"), "{first}");
    let line = line.expect("a warning");
    for words in ["WARN", "limit=900", "clients=354", "max_connections=20000"] {
        assert!(line.contains(words), "{line}");
    }
}

#[test]
fn the_first_line_says_what_runs_and_where_it_is_found() {
    let first = |set: &[(&str, &str)]| {
        let line = start("ulimit -n 900;", set, Stdio::null()).line("");
        let (_, line) = line.split_once("INFO ").expect("its level");
        line.trim().to_owned()
    };
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(
        first(&[]),
        format!("dlx-proxy starts version={version} settings=none listen=127.0.0.1:0 clients=354")
    );
    // A port where somebody listens: the line comes all the same.
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("an address").port();
    let file = std::env::temp_dir().join(format!("dlx-proxy-{port} first.toml"));
    std::fs::write(&file, "log-level = \"info\"").expect("a file");
    let name = file.to_str().expect("UTF-8");
    let address = format!("0.0.0.0:{port}");
    let line = first(&[("DLX_PROXY_CONFIG", name), ("DLX_PROXY_ADMIN", &address)]);
    std::fs::remove_file(&file).expect("it is there");
    assert_eq!(
        line,
        format!(
            "dlx-proxy starts version={version} settings={name:?} listen=127.0.0.1:0 page=\"http://127.0.0.1:{port}/\" clients=354"
        )
    );
    let none = ("DLX_PROXY_ADMIN_API", "false");
    let line = first(&[("DLX_PROXY_ADMIN", &address), none]);
    assert!(!line.contains("page"), "{line}");
}

/// A broker that accepts, and never ends its first frame: where it is, and how many connections it has had.
fn slow_broker() -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let accepted = Arc::new(AtomicUsize::new(0));
    let count = accepted.clone();
    thread::spawn(move || {
        let mut open = Vec::new();
        for mut connection in listener.incoming().map_while(Result::ok) {
            // One that says nothing at all would be taken for hung.
            connection.write_all(&[1]).expect("a new connection");
            open.push(connection);
            count.fetch_add(1, Ordering::Relaxed);
        }
    });
    (address, accepted)
}

#[test]
fn clients_without_a_descriptor_wait_and_no_node_is_blamed() {
    let (broker, accepted) = slow_broker();
    let upstream = format!("amqp://guest:guest@{broker}");
    let environment = [
        ("DLX_PROXY_UPSTREAM", upstream.as_str()),
        ("DLX_PROXY_MAX_ADMIN_CONNECTIONS", "1"),
        ("DLX_PROXY_HANDSHAKE_TIMEOUT", "60s"),
    ];
    let mut proxy = start("ulimit -n 80;", &environment, Stdio::null());
    let line = proxy.line("dlx-proxy starts");
    assert!(line.contains("clients=7"), "{line}");
    let listening = proxy.line("listening leg=\"client\"");
    let address = listening.split("addr=").nth(1).expect("an address").trim();
    let mut clients: Vec<_> = (0..60)
        .map(|_| {
            let mut client = TcpStream::connect(address).expect("the system accepts");
            client.write_all(&PROTOCOL).expect("a new connection");
            client
        })
        .collect();
    let has = |number: usize| {
        until(|| (accepted.load(Ordering::Relaxed) >= number).then_some(()));
        // Those that are too many would come now.
        thread::sleep(Duration::from_millis(500));
        assert_eq!(accepted.load(Ordering::Relaxed), number);
    };
    has(7);
    for client in &clients {
        client.set_nonblocking(true).expect("a socket");
        let read = (&mut &*client).read(&mut [0]);
        let read = read.map_err(|error| error.kind());
        let is_open = matches!(read, Ok(1) | Err(ErrorKind::WouldBlock));
        assert!(is_open, "{read:?}");
    }
    clients.drain(..3);
    has(10);

    proxy.signal("KILL");
    proxy.ended();
    let log = proxy.log();
    for words in ["cannot accept", "does not answer"] {
        assert!(!log.iter().any(|line| line.contains(words)), "{log:?}");
    }
}

#[test]
fn doctor_finds_the_limit_that_the_proxy_would_have() {
    let program = env!("CARGO_BIN_EXE_dlx-proxy");
    let script = format!("ulimit -Sn 200; ulimit -Hn 900; exec '{program}' doctor");
    let doctor = Command::new("sh")
        .args(["-c", &script])
        .env_clear()
        .env("DLX_PROXY_UPSTREAM", "amqp://guest:guest@127.0.0.1:1")
        .env("DLX_PROXY_ADMIN", "127.0.0.1:2")
        .output()
        .expect("a shell");
    let said = String::from_utf8_lossy(&doctor.stdout);
    assert!(
        said.contains("A limit of 900 has room for 354 clients"),
        "{said}"
    );
}

#[test]
fn clients_can_come_by_a_unix_socket() {
    let (broker, accepted) = slow_broker();
    let folder = std::env::temp_dir().join(format!("dlx-proxy-{}-unix", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let listen = folder.join("amqp.sock").display().to_string();
    let upstream = format!("amqp://guest:guest@{broker}");
    let at = format!("unix:{listen}");
    let environment = [
        ("DLX_PROXY_UPSTREAM", upstream.as_str()),
        ("DLX_PROXY_LISTEN", &at),
    ];

    // What a process has left there that ended by force.
    drop(UnixListener::bind(&listen).expect("bound"));
    let mut proxy = start("", &environment, Stdio::null());
    let line = proxy.line("listening leg=\"client\"");
    assert!(line.contains(&format!("addr=unix:{listen}")), "{line}");
    let mut client = UnixStream::connect(&listen).expect("it listens");
    client.write_all(&PROTOCOL).expect("a new connection");
    until(|| (accepted.load(Ordering::Relaxed) > 0).then_some(()));
    assert_eq!(accepted.load(Ordering::Relaxed), 1);

    let mut second = start("", &environment, Stdio::null());
    let line = second.line("cannot listen on `listen`");
    assert!(line.contains(&listen), "{line}");
    if !line.contains("another process listens there") {
        second.line("another process listens there");
    }

    proxy.signal("TERM");
    assert!(proxy.ended().success());
    assert!(!Path::new(&listen).exists(), "{listen} is left");
    std::fs::remove_dir_all(&folder).expect("a folder");
}
