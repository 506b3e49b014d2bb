//! Handing vetoes on to robot log viewers: an MCAP file with what the robot saw beside what was answered.
//!
//! | topic | message | encoding |
//! |---|---|---|
//! | `/steadfast/record` | every record, as stored | JSON |
//! | `/steadfast/veto` | `steadfast.Veto` | protobuf |
//! | `/steadfast/image` | `foxglove.CompressedImage`, from the evidence of each veto | protobuf |
//!
//! Protobuf where a viewer should draw something: viewers show JSON images as raw bytes.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufWriter, Seek, Write};
use std::path::Path;

use ::mcap::records::MessageHeader;
use ::mcap::{McapError, WriteOptions, Writer};

use super::evidence::{self, Exhibit};
use super::protobuf::{self, Message, Type};
use super::read::{self, Content, Entry, ReadError};
use super::record::{Decided, Event, Record, Verdict};
use crate::triple::Digest;

/// Why an export stopped.
#[derive(Debug, thiserror::Error)]
pub enum McapExportError {
    /// The log's directory cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The file cannot be written.
    #[error("cannot write the MCAP file: {0}")]
    Write(#[from] McapError),
}

/// What an export wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Exported {
    /// Records.
    pub records: u64,
    /// Vetoes among them.
    pub vetoes: u64,
    /// Images from the evidence.
    pub images: u64,
    /// Places where a segment ended in damage and its rest was passed over.
    pub damaged: u64,
}

struct Topics {
    record: u16,
    veto: u16,
    image: u16,
}

/// Writes the records that `takes` wants, and where there is a directory of evidence the images of each veto.
///
/// # Errors
/// When the log's directory cannot be read or the output cannot be written.
pub fn write(
    dir: &Path,
    evidence: Option<&Path>,
    takes: impl Fn(&Entry) -> bool,
    out: impl Write + Seek,
) -> Result<Exported, McapExportError> {
    let options = WriteOptions::new().compression(None).profile("").library("steadfast");
    let mut writer = options.create(BufWriter::new(out))?;
    let topics = topics(&mut writer)?;
    let mut exported = Exported::default();
    for entry in read::entries(dir)? {
        let Ok(entry) = entry else {
            exported.damaged += 1;
            continue;
        };
        let Content::Record(record) = &entry.content else { continue };
        if !takes(&entry) {
            continue;
        }
        exported.records += 1;
        let json = serde_json::to_vec(record).unwrap_or_default();
        put(&mut writer, topics.record, record.at.wall_ns, &json)?;
        if let Event::Decided(decided) = &record.event
            && decided.verdict == Verdict::Veto
        {
            exported.vetoes += 1;
            put(&mut writer, topics.veto, record.at.wall_ns, &veto(record, decided))?;
            exported.images += images(&mut writer, topics.image, evidence, decided)?;
        }
    }
    writer.finish()?;
    Ok(exported)
}

fn topics<W: Write + Seek>(writer: &mut Writer<W>) -> Result<Topics, McapError> {
    const STAMP: &str = ".google.protobuf.Timestamp";
    const NEEDS: [&str; 1] = ["google/protobuf/timestamp.proto"];
    let veto = [
        (1, "stamp", Type::Message, STAMP),
        (2, "check_id", Type::Text, ""),
        (3, "reason", Type::Text, ""),
        (4, "detail", Type::Text, ""),
        (5, "mode", Type::Text, ""),
        (6, "scene", Type::Text, ""),
        (7, "triple", Type::Text, ""),
        (8, "malleability", Type::Double, ""),
        (9, "refuse_log_odds", Type::Double, ""),
        (10, "spread", Type::Double, ""),
        (11, "boot_ns", Type::Uint64, ""),
    ];
    // https://github.com/foxglove/foxglove-sdk/blob/main/schemas/proto/foxglove/CompressedImage.proto
    let image = [
        (1, "timestamp", Type::Message, STAMP),
        (4, "frame_id", Type::Text, ""),
        (2, "data", Type::Bytes, ""),
        (3, "format", Type::Text, ""),
    ];
    let veto = protobuf::file("steadfast/Veto.proto", "steadfast", &NEEDS, "Veto", &veto);
    let image = protobuf::file("foxglove/CompressedImage.proto", "foxglove", &NEEDS, "CompressedImage", &image);
    let set = |file| protobuf::file_set(&[protobuf::timestamp_file(), file]);
    let record = writer.add_schema("steadfast.Record", "jsonschema", br#"{"type":"object"}"#)?;
    let veto = writer.add_schema("steadfast.Veto", "protobuf", &set(veto))?;
    let image = writer.add_schema("foxglove.CompressedImage", "protobuf", &set(image))?;
    let none = BTreeMap::new();
    Ok(Topics {
        record: writer.add_channel(record, "/steadfast/record", "json", &none)?,
        veto: writer.add_channel(veto, "/steadfast/veto", "protobuf", &none)?,
        image: writer.add_channel(image, "/steadfast/image", "protobuf", &none)?,
    })
}

fn put<W: Write + Seek>(writer: &mut Writer<W>, topic: u16, wall_ns: u64, message: &[u8]) -> Result<(), McapError> {
    let header = MessageHeader { channel_id: topic, sequence: 0, log_time: wall_ns, publish_time: wall_ns };
    writer.write_to_known_channel(&header, message)
}

fn veto(record: &Record, decided: &Decided) -> Vec<u8> {
    let mut message = Message::default()
        .message(1, &protobuf::timestamp(record.at.wall_ns))
        .text(2, &decided.check_id.to_string())
        .text(3, decided.reason.map_or("", |reason| reason.code()))
        .text(4, &decided.detail)
        .text(5, decided.mode.code())
        .text(6, decided.scene.as_deref().unwrap_or_default())
        .text(7, &decided.triple.map(|triple| triple.to_string()).unwrap_or_default())
        .varint(11, record.at.boot_ns);
    if let Some(readings) = &decided.readings {
        let values = [(8, readings.malleability), (9, readings.refuse_log_odds), (10, readings.spread)];
        for (number, value) in values {
            message = match value {
                Some(value) => message.double(number, value.get()),
                None => message,
            };
        }
    }
    message.into_bytes()
}

/// The images of a veto's page of evidence, oldest first. Missing evidence is no error: it is bounded, and the records
/// outlive it.
fn images<W: Write + Seek>(
    writer: &mut Writer<W>,
    topic: u16,
    evidence: Option<&Path>,
    decided: &Decided,
) -> Result<u64, McapError> {
    let Some(dir) = evidence else { return Ok(0) };
    let Ok(Some(page)) = evidence::page_of(dir, decided.check_id) else { return Ok(0) };
    let mut written = 0;
    for exhibit in &page.exhibits {
        let bytes = fs::read(dir.join("images").join(exhibit.digests.image.to_string()));
        // A file that is not what its name says is no evidence.
        let Some(bytes) = bytes.ok().filter(|bytes| Digest::of(bytes) == exhibit.digests.image) else { continue };
        put(writer, topic, exhibit.at.wall_ns, &image(exhibit, &bytes))?;
        written += 1;
    }
    Ok(written)
}

fn image(exhibit: &Exhibit, bytes: &[u8]) -> Vec<u8> {
    let format = if bytes.starts_with(b"\x89PNG") { "png" } else { "jpeg" };
    Message::default()
        .message(1, &protobuf::timestamp(exhibit.at.wall_ns))
        .bytes(2, bytes)
        .text(3, format)
        .text(4, "camera")
        .into_bytes()
}
