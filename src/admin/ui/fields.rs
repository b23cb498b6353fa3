//! The fields of a form or a query. Pure.

use url::form_urlencoded;

/// The member of a form by which the gateway knows it as its own.
pub(super) const FORM_TOKEN: &str = "form_token";

pub(in crate::admin) type Fields = Vec<(String, String)>;

pub(in crate::admin) fn query_fields(query: &str) -> Fields {
    form_urlencoded::parse(query.as_bytes())
        .into_owned()
        .collect()
}

/// The first field of a name.
pub(in crate::admin) fn field<'f>(fields: &'f Fields, name: &str) -> Option<&'f str> {
    let found = fields.iter().find(|(known, _)| known == name);
    found.map(|(_, value)| value.as_str())
}
