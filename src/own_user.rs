//! The proxy's own user at the broker, and what makes the broker let it work: one text for `/readyz`, the log and `doctor`.

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
pub fn set_permissions(user: &ShortStr, vhost: &Vhost) -> String {
    let (user, vhost) = (user.to_string(), vhost.to_string());
    format!(
        "rabbitmqctl set_permissions -p {} {}",
        quoted(&vhost),
        quoted(&user)
    )
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

    /// Words of 3.10.8, 4.0.5 and 4.3.6.
    #[test]
    fn each_refusal_has_what_to_do_about_it() {
        let user = OwnUser {
            name: ShortStr::copy(b"proxy").expect("short"),
            prefix: "dlx-proxy".to_owned(),
        };
        let permissions = "give it the permissions: rabbitmqctl set_permissions -p 'my orders' proxy '^dlx-proxy' '.*' '^dlx-proxy'";
        let vhost = Vhost::copy(b"my orders").expect("short");
        for (cause, todo) in [
            (
                "403 ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN. For details see the broker logfile.",
                Some(
                    "correct the user or the password in `upstream` (rabbitmqctl authenticate_user proxy tests them)",
                ),
            ),
            (
                "530 NOT_ALLOWED - access to vhost 'my orders' refused for user 'proxy'",
                Some(permissions),
            ),
            (
                "403 ACCESS_REFUSED - access to exchange 'dlx-proxy.parked' in vhost 'my orders' refused for user 'proxy'",
                Some(permissions),
            ),
            (
                "403 ACCESS_REFUSED - configure access to exchange 'dlx-proxy.parked' in vhost 'my orders' refused for user 'proxy'",
                Some(permissions),
            ),
            (
                "530 NOT_ALLOWED - vhost my orders not found",
                Some(
                    "make the vhost (rabbitmqctl add_vhost 'my orders'), or take it out of `vhosts`",
                ),
            ),
            (
                "406 PRECONDITION_FAILED - cannot declare queue 'dlx-proxy.intake': queue limit in vhost 'my orders' (1) is reached",
                None,
            ),
        ] {
            assert_eq!(user.remedy(&vhost, cause).as_deref(), todo, "{cause}");
        }
    }
}
