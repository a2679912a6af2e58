//! Where pages are, and what of the API they use. Names are bytes: all but a few are written as `%` and two digits.

use super::super::parameters::{Parameters, Place};
use crate::amqp::ids::Vhost;
use crate::http::escaped;

const API: &str = "/api/v1";

pub(super) fn vhost(vhost: &Vhost) -> String {
    format!("/vhosts/{}", escaped(vhost))
}

pub(super) fn queue(place: &Place) -> String {
    let queue = escaped(&place.queue);
    format!("{}/queues/{queue}", vhost(&place.vhost))
}

pub(super) fn messages(place: &Place, query: &str) -> String {
    with(&format!("{}/messages", queue(place)), query)
}

pub(super) fn message(place: &Place, id: &str, query: &str) -> String {
    let id = escaped(id.as_bytes());
    with(&format!("{}/messages/{id}", queue(place)), query)
}

pub(super) fn redrive(of: &Vhost, id: u64) -> String {
    format!("{}/redrives/{id}", vhost(of))
}

pub(super) fn live(of: &Vhost) -> String {
    format!("{}/live", vhost(of))
}

pub(super) fn search(of: &Vhost) -> String {
    format!("{}/search", vhost(of))
}

pub(super) fn handled(of: &Vhost) -> String {
    format!("{}/queues", vhost(of))
}

pub(super) fn plans(of: &Vhost) -> String {
    format!("{API}{}/", handled(of))
}

pub(super) fn deaths(of: &Vhost) -> String {
    format!("{API}{}/deaths", vhost(of))
}

pub(super) fn told(of: &Vhost, id: u64, verb: &str) -> String {
    format!("{API}{}{verb}", redrive(of, id))
}

pub(super) fn order(place: &Place, what: &str, query: &str) -> String {
    with(&format!("{API}{}/{what}", queue(place)), query)
}

pub(super) fn query<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a [u8])>) -> String {
    let given = pairs.into_iter().filter(|(_, value)| !value.is_empty());
    let pairs =
        given.map(|(name, value)| format!("{}={}", escaped(name.as_bytes()), escaped(value)));
    pairs.collect::<Vec<_>>().join("&")
}

pub(super) fn query_without(parameters: &Parameters, names: &[&str]) -> String {
    let others = parameters.pairs().filter(|(name, _)| !names.contains(name));
    query(others)
}

fn with(path: &str, query: &str) -> String {
    match query.is_empty() {
        true => path.to_owned(),
        false => format!("{path}?{query}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::amqp::ids::ShortStr;

    #[test]
    fn names_are_escaped_and_read_back() {
        let name = ShortStr::copy(b"a/b?<\xff> \"+&%2F.").expect("short");
        let place = Place::new(Vhost::ROOT, name);
        let path = messages(&place, "");
        assert_eq!(
            path,
            "/vhosts/%2F/queues/a%2Fb%3F%3C%FF%3E%20%22%2B%26%252F./messages"
        );
        let uri = path.parse().expect("a URI");
        assert_eq!(Place::of(&uri), Ok(place));
    }

    #[test]
    fn parameters_stay_the_octets_that_they_are() {
        let uri = "/x?source=a%FF+b&offset=100&header=x%3D1&header=y=2";
        let parameters = Parameters::of(&uri.parse().expect("a URI"));
        let query = query_without(&parameters, &["offset"]);
        assert_eq!(query, "source=a%FF%20b&header=x%3D1&header=y%3D2");
    }
}
