//! The fields of a form or a query. Pure.

use url::form_urlencoded;

/// Form field that proves that the gateway rendered the form.
pub(super) const FORM_TOKEN: &str = "form_token";

pub(in crate::admin) type Fields = Vec<(String, String)>;

pub(in crate::admin) fn query_fields(query: &str) -> Fields {
    form_urlencoded::parse(query.as_bytes())
        .into_owned()
        .collect()
}

/// The first field with this name.
pub(in crate::admin) fn field<'f>(fields: &'f Fields, name: &str) -> Option<&'f str> {
    let found = fields.iter().find(|(known, _)| known == name);
    found.map(|(_, value)| value.as_str())
}
