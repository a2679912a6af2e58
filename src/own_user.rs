//! The proxy's own user at the broker, and what makes the broker let it work: one text for `/readyz`, the log and `doctor`.

use std::fmt::Display;

use crate::amqp::ids::{ShortStr, Vhost};

#[derive(Clone, Debug)]
pub struct OwnUser {
    pub name: ShortStr,
    pub prefix: String,
}

// === impl OwnUser ===

impl OwnUser {
    pub fn grant(&self, vhost: &Vhost) -> String {
        let begins = format!("^{}", pattern(&self.prefix));
        let command = set_permissions(&self.name, vhost);
        format!("{command} '{begins}' '.*' '{begins}'")
    }

    pub fn remedy(&self, vhost: &Vhost, cause: &str) -> Option<String> {
        let (user, name) = (self.name.to_string(), quoted(&vhost.to_string()));
        Some(if cause.contains("Login was refused") {
            let local = match user == "guest" {
                true => "; and RabbitMQ lets `guest` in from its own host only",
                false => "",
            };
            let user = quoted(&user);
            format!(
                "correct the user or the password in `upstream` (rabbitmqctl authenticate_user {user} tests them){local}"
            )
        } else if cause.contains("access to ") && cause.contains(" refused for user ") {
            format!("give it the permissions: {}", self.grant(vhost))
        } else if cause.contains("vhost ") && cause.ends_with(" not found") {
            format!("make the vhost (rabbitmqctl add_vhost {name}), or take it out of `vhosts`")
        } else {
            return None;
        })
    }
}

/// `rabbitmqctl set_permissions` without the patterns.
pub fn set_permissions(user: impl Display, vhost: &Vhost) -> String {
    let [vhost, user] = [vhost.to_string(), user.to_string()].map(|name| quoted(&name));
    format!("rabbitmqctl set_permissions -p {vhost} {user}")
}

/// A pattern for names with this beginning, without `^`. A `-` needs no escape outside brackets.
pub fn pattern(begins: &str) -> String {
    regex::escape(begins).replace(r"\-", "-")
}

pub fn quoted(word: &str) -> String {
    let is_plain =
        |character: char| character.is_ascii_alphanumeric() || "-_./:@".contains(character);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::amqp::ids::name;
    use crate::tests::lines_hold;

    /// Words of 3.10.8, 4.0.5 and 4.3.6.
    #[tokio::test]
    async fn each_refusal_has_what_to_do_about_it() {
        lines_hold("testdata/own_user.txt", async |line| {
            let (user, cause) = line.split_once(": ").unwrap_or_default();
            let (name, prefix) = (name(user), "dlx-proxy".to_owned());
            let remedy =
                OwnUser { name, prefix }.remedy(&crate::amqp::ids::name("my orders"), cause);
            remedy.unwrap_or_else(|| "nothing".to_owned())
        })
        .await;
    }
}
