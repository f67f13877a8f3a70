//! Reads an export of the table, as DynamoDB writes it to S3: `manifest-files.json` names data files
//! of gzipped lines, `{"Item": {…}}`, in DynamoDB's JSON
//! (<https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/S3DataExport.Output.html>).

use std::collections::HashMap;
use std::fmt::Display;
use std::io::{self, Read};
use std::path::PathBuf;

use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::AttributeValue;
use data_encoding::BASE64;
use flate2::read::MultiGzDecoder;
use futures_util::stream::{self, Stream};
use lambda_idempotency_audit::{AuditError, Completed, read};
use serde::Deserialize;
use serde_json::Value;

use crate::connect::layout;
use crate::context::Context;
use crate::failure::{Failure, words};

const MANIFEST: &str = "manifest-files.json";

#[derive(Deserialize)]
struct DataFile {
    #[serde(rename = "dataFileS3Key")]
    key: String,
}

#[derive(Deserialize)]
struct Line {
    #[serde(rename = "Item")]
    item: HashMap<String, Value>,
}

/// The place of an export.
enum Place {
    /// In a folder: what S3 has under `AWSDynamoDB/EXPORT-ID`.
    Folder(PathBuf),
    /// In S3: the bucket, and the prefix up to `AWSDynamoDB/EXPORT-ID`.
    Bucket(aws_sdk_s3::Client, String, String),
}

impl Place {
    async fn open(place: &str, context: &Context) -> Result<Self, Failure> {
        let Some(rest) = place.strip_prefix("s3://") else {
            return Ok(Self::Folder(place.into()));
        };
        let (bucket, prefix) = rest.split_once('/').ok_or_else(|| {
            Failure::usage("write the export's place as s3://BUCKET/PREFIX/AWSDynamoDB/EXPORT-ID")
        })?;
        let config = aws_sdk_s3::config::Builder::from(&context.aws().await?)
            // An emulator has no host name for each bucket.
            .force_path_style(context.global().endpoint_url.is_some())
            .build();
        let client = aws_sdk_s3::Client::from_conf(config);
        let prefix = prefix.trim_end_matches('/').to_owned();
        Ok(Self::Bucket(client, bucket.to_owned(), prefix))
    }

    async fn manifest(&self) -> Result<Vec<u8>, AuditError> {
        match self {
            Self::Folder(folder) => file(folder.join(MANIFEST)),
            Self::Bucket(client, bucket, prefix) => {
                object(client, bucket, &format!("{prefix}/{MANIFEST}")).await
            }
        }
    }

    /// A data file, by its key in S3.
    async fn data(&self, key: &str) -> Result<Vec<u8>, AuditError> {
        match self {
            Self::Folder(folder) => {
                let name = key.rsplit('/').next().unwrap_or(key);
                file(folder.join("data").join(name))
            }
            Self::Bucket(client, bucket, _) => object(client, bucket, key).await,
        }
    }
}

fn not_read(what: &str, reason: impl Display) -> AuditError {
    AuditError::NotRead {
        doing: format!("read {what} of the export"),
        reason: reason.to_string(),
    }
}

fn file(path: PathBuf) -> Result<Vec<u8>, AuditError> {
    let shown = path.display().to_string();
    std::fs::read(path).map_err(|error| not_read(&shown, error))
}

async fn object(
    client: &aws_sdk_s3::Client,
    bucket: &str,
    key: &str,
) -> Result<Vec<u8>, AuditError> {
    let object = client.get_object().bucket(bucket).key(key).send().await;
    let object = object.map_err(|error| not_read(key, words(&error)))?;
    let bytes = object
        .body
        .collect()
        .await
        .map_err(|error| not_read(key, error))?;
    Ok(bytes.to_vec())
}

/// Reads the completed records of an export, a data file at a time.
pub(super) async fn pages<'a>(
    place: &str,
    context: &'a Context,
) -> Result<impl Stream<Item = Result<Vec<Completed>, AuditError>> + use<'a>, Failure> {
    let place = Place::open(place, context).await?;
    let manifest = place.manifest().await?;
    let lines = manifest
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty());
    let keys: Result<Vec<String>, _> = lines
        .map(|line| serde_json::from_slice::<DataFile>(line).map(|file| file.key))
        .collect();
    let keys = keys.map_err(|error| not_read(MANIFEST, error))?;
    let begun = (keys.into_iter(), place, context);
    Ok(stream::unfold(begun, async |(mut keys, place, context)| {
        let key = keys.next()?;
        let page = match place.data(&key).await {
            Ok(bytes) => records(&bytes, context).map_err(|error| not_read(&key, error)),
            Err(error) => Err(error),
        };
        Some((page, (keys, place, context)))
    }))
}

fn records(gzipped: &[u8], context: &Context) -> io::Result<Vec<Completed>> {
    let layout = layout(&context.global().layout);
    let mut text = String::new();
    MultiGzDecoder::new(gzipped).read_to_string(&mut text)?;
    let mut records = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty()) {
        let line: Line = serde_json::from_str(line)?;
        let item = line
            .item
            .iter()
            .filter_map(|(name, value)| Some((name.clone(), attribute(value)?)));
        let item: HashMap<_, _> = item.collect();
        context.skip_elsewhere(layout.is_elsewhere(&item).into());
        records.extend(read(&layout, &item));
    }
    Ok(records)
}

/// A value of DynamoDB's JSON: `{"S": "…"}`. One of a kind that no record has is left out.
fn attribute(value: &Value) -> Option<AttributeValue> {
    let (kind, value) = value.as_object()?.iter().next()?;
    Some(match kind.as_str() {
        "S" => AttributeValue::S(value.as_str()?.to_owned()),
        "N" => AttributeValue::N(value.as_str()?.to_owned()),
        "B" => AttributeValue::B(Blob::new(BASE64.decode(value.as_str()?.as_bytes()).ok()?)),
        "M" => {
            let members = value.as_object()?.iter();
            let member = |(name, value): (&String, &Value)| Some((name.clone(), attribute(value)?));
            AttributeValue::M(members.filter_map(member).collect())
        }
        "BOOL" => AttributeValue::Bool(value.as_bool()?),
        "NULL" => AttributeValue::Null(true),
        _ => return None,
    })
}
