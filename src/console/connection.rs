//! A connection to the broker as an ordinary client has it, for the commands that need no proxy: lapin, on a connection that is made as the
//! proxy makes its own, so that TLS and the PROXY protocol are the same.

use std::sync::Arc;

use amq_protocol::uri::{AMQPAuthority, AMQPScheme, AMQPUri, AMQPUserInfo};
use async_rs::{Runtime, Tokio};
use lapin::{AsyncTcpStream, Connection, ConnectionProperties, ErrorKind};
use tokio_util::compat::TokioAsyncReadCompatExt;

use crate::amqp::ids::{ShortStr, Vhost};
use crate::net::dial::Way;
use crate::net::nodes::Address;
use kit::Kit;

mod kit;

#[derive(Clone)]
pub struct Access {
    pub user: ShortStr,
    pub password: String,
    pub way: Way,
}

// === impl Access ===

impl Access {
    /// `name`: as the management UI shows it.
    ///
    /// # Errors
    /// From the broker or the system.
    pub async fn connect_at(
        &self,
        address: &Address,
        vhost: &Vhost,
        name: &str,
    ) -> Result<Connection, lapin::Error> {
        let node = &address.node;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let uri = AMQPUri {
            scheme: AMQPScheme::AMQP,
            authority: AMQPAuthority {
                userinfo: AMQPUserInfo {
                    username: text(&self.user),
                    password: self.password.clone(),
                },
                host: node.host.clone(),
                port: node.port,
            },
            vhost: text(vhost),
            query: Default::default(),
        };
        let properties = ConnectionProperties::default().with_connection_name(name.into());
        let (way, address) = (self.way.clone(), address.clone());
        let connect = async move |_: AMQPUri, _: Runtime<Kit>| {
            let connected = way.to_address(&address).await;
            let socket = connected.map_err(|error| ErrorKind::IOError(Arc::new(error)))?;
            Ok(AsyncTcpStream::Plain(socket.compat()))
        };
        let runtime = Runtime::new(Kit(Tokio::current()));
        Connection::connector(uri, runtime, connect, properties).await
    }
}
