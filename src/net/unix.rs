//! A port that is a Unix socket: a file that the proxy makes when it begins, and removes at its end.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tokio::net::{UnixListener, UnixStream};

/// For the proxy's user and group: write permission allows connecting.
const MODE: u32 = 0o660;

#[derive(Debug)]
pub struct UnixPort {
    listener: UnixListener,
    path: PathBuf,
    /// Device and inode, to recognize a file that was replaced.
    file: Option<(u64, u64)>,
}

// === impl UnixPort ===

impl UnixPort {
    /// Creates the socket file, and replaces one of a dead process.
    ///
    /// # Errors
    /// Another process listens there, another file is there, or the system refuses.
    pub async fn bind(path: &Path) -> io::Result<UnixPort> {
        match UnixStream::connect(path).await {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            // A file that is no socket refuses, too.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => left_behind(path)?,
            // Its queue may be full.
            Ok(_) | Err(_) => {
                return Err(io::Error::new(
                    io::ErrorKind::AddrInUse,
                    "another process listens there, or may not be asked",
                ));
            }
        }
        let listener = UnixListener::bind(path)?;
        fs::set_permissions(path, Permissions::from_mode(MODE))?;
        Ok(UnixPort {
            listener,
            path: path.to_owned(),
            file: file(path),
        })
    }

    pub(super) async fn accept(&self) -> io::Result<UnixStream> {
        Ok(self.listener.accept().await?.0)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for UnixPort {
    fn drop(&mut self) {
        if self.file.is_some() && self.file == file(&self.path) {
            // What cannot be removed is replaced at the next start.
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn left_behind(path: &Path) -> io::Result<()> {
    if fs::symlink_metadata(path)?.file_type().is_socket() {
        return fs::remove_file(path);
    }
    Err(io::Error::new(
        io::ErrorKind::AlreadyExists,
        "there is a file that is no socket",
    ))
}

fn file(path: &Path) -> Option<(u64, u64)> {
    let file = fs::symlink_metadata(path).ok()?;
    Some((file.dev(), file.ino()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::net;

    use super::*;

    fn path(name: &str) -> PathBuf {
        let name = format!("dlx-proxy-{}-{name}.sock", std::process::id());
        std::env::temp_dir().join(name)
    }

    #[tokio::test]
    async fn a_file_is_made_and_removed() {
        let path = path("made");
        let port = UnixPort::bind(&path).await.expect("bound");
        let mode = fs::metadata(&path).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, MODE);
        let (client, accepted) = tokio::join!(UnixStream::connect(&path), port.accept());
        assert!(client.is_ok() && accepted.is_ok());
        drop(port);
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn one_that_was_left_behind_is_replaced_and_one_in_use_is_not() {
        let path = path("left");
        // The standard library leaves the file.
        drop(net::UnixListener::bind(&path).expect("bound"));
        assert!(path.exists());
        let port = UnixPort::bind(&path).await.expect("replaced");
        let error = UnixPort::bind(&path).await.expect_err("in use");
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        assert!(error.to_string().contains("another process listens there"));
        // The attempt has not removed the file of the other.
        assert!(UnixStream::connect(&path).await.is_ok());

        // Somebody else's is not removed.
        fs::remove_file(&path).expect("removed");
        let _other = net::UnixListener::bind(&path).expect("bound");
        drop(port);
        assert!(path.exists());
        fs::remove_file(&path).expect("removed");
    }

    #[tokio::test]
    async fn a_file_that_is_no_socket_stays() {
        let path = path("file");
        fs::write(&path, "text").expect("written");
        let error = UnixPort::bind(&path).await.expect_err("a file");
        assert_eq!(error.to_string(), "there is a file that is no socket");
        assert_eq!(fs::read(&path).expect("there"), b"text");
        fs::remove_file(&path).expect("removed");
    }
}
