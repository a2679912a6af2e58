//! The program itself, as a user starts it.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitStatus;

use super::lab::until;
use super::proxy::Admin;
use super::running::{self, Running, dlx_proxy};

/// A running `dlx-proxy`, and its log.
pub(crate) struct Program {
    running: Running,
    log: PathBuf,
    pub address: SocketAddr,
    pub admin: Admin,
}

// === impl Program ===

impl Program {
    /// Starts it on free ports and waits for the lines that say which.
    pub(crate) async fn start(upstream: &str, vhosts: &str) -> Program {
        Program::start_with(upstream, vhosts, &[]).await
    }

    /// The same with these variables in its environment: `DLX_PROXY_CLOSE_WAIT`, ….
    pub(crate) async fn start_with(
        upstream: &str,
        vhosts: &str,
        environment: &[(&str, &str)],
    ) -> Program {
        let mut command = dlx_proxy();
        command
            .args(["run", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"])
            .args(["--upstream", upstream])
            .env("DLX_PROXY_VHOSTS", vhosts)
            .envs(environment.iter().copied());
        let log = format!("dlx-proxy-{:x}.log", fastrand::u64(..));
        let log = std::env::temp_dir().join(log);
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut program = Program {
            running: Running::start(&mut command, &log).expect("the program starts"),
            log,
            address: nowhere,
            admin: Admin(nowhere),
        };
        program.address = program.bound("client").await;
        program.admin = Admin(program.bound("admin").await);
        program
    }

    /// The address in the line that says `listening leg="..." addr=...`.
    async fn bound(&self, leg: &str) -> SocketAddr {
        let leg = format!("leg=\"{leg}\"");
        let find = || {
            let lines = self.lines(&["listening", &leg]);
            lines
                .first()
                .and_then(|line| line.split("addr=").nth(1)?.trim().parse().ok())
        };
        until(format_args!("a listening line with {leg}"), async || {
            find().is_some()
        })
        .await;
        find().expect("found just now")
    }

    /// Lines of its log that contain all of these, as far as it is written.
    pub(crate) fn lines(&self, words: &[&str]) -> Vec<String> {
        running::lines(&self.log, words)
    }

    /// Its resident memory, in KiB. It may become less.
    pub(crate) fn resident(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.running.child.id()))
            .expect("it runs");
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))
            .expect("VmRSS");
        line.trim()
            .trim_end_matches(" kB")
            .parse()
            .expect("a number")
    }

    /// How many files and sockets it has open.
    pub(crate) fn files(&self) -> usize {
        let open = std::fs::read_dir(format!("/proc/{}/fd", self.running.child.id()));
        open.expect("it runs").count()
    }

    pub(crate) fn signal(&self, name: &str) {
        self.running.signal(name).expect("it runs");
    }

    /// Waits until it has ended by itself.
    pub(crate) async fn ended(&mut self) -> ExitStatus {
        let mut ended = None;
        until("the program ends", async || {
            ended = self.running.child.try_wait().expect("our child");
            ended.is_some()
        })
        .await;
        ended.expect("it ended")
    }

    /// SIGTERM, and an orderly end.
    pub(crate) async fn stop(mut self) {
        self.signal("TERM");
        let status = self.ended().await;
        assert!(
            status.success(),
            "{status}; its log: {:#?}",
            self.lines(&[])
        );
        assert_eq!(self.lines(&["panicked"]), [""; 0]);
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.log);
    }
}
