//! The file and the process of a slow I/O, with numbers instead of texts.

use biolat_model::{
    io_names::{IoFile, IoNames, IoProcess},
    name::Name,
};

use super::{
    bits::{BitReader, BitWriter},
    names::{NameTable, Names},
};

/// Expected lengths of a text's number, an inode number, and a process id.
const TEXT_LENGTH: u32 = 4;
const INODE_LENGTH: u32 = 20;
const PROCESS_LENGTH: u32 = 12;

/// The text 0 is empty and stands for an unknown one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct NumberedNames {
    class: u32,
    file_unknown: u32,
    process_unknown: u32,
    file: Option<NumberedFile>,
    process: Option<NumberedProcess>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct NumberedFile {
    path: u32,
    mount: Option<u32>,
    file_system: u32,
    inode: u64,
    removed: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct NumberedProcess {
    id: u32,
    command: u32,
    known_by: u32,
}

impl NumberedNames {
    pub(super) fn of(io: &IoNames, names: &mut NameTable) -> Self {
        let IoNames { class, file, file_unknown, process, process_unknown } = io;
        let mut text = |name: &Option<Name>| names.text(name.as_deref().unwrap_or_default());
        let (class, file_unknown, process_unknown) = (text(class), text(file_unknown), text(process_unknown));
        let file = file.as_ref().map(|IoFile { path, mount, file_system, inode, removed }| NumberedFile {
            path: names.text(path),
            mount: mount.as_deref().map(|mount| names.text(mount)),
            file_system: names.text(file_system),
            inode: *inode,
            removed: *removed,
        });
        let process = process.as_ref().map(|IoProcess { id, command, known_by }| NumberedProcess {
            id: *id,
            command: names.text(command),
            known_by: names.text(known_by),
        });
        Self { class, file_unknown, process_unknown, file, process }
    }

    pub(super) fn named(&self, names: &Names) -> IoNames {
        let text = |number: u32| names.text(number).to_owned();
        let name = |number: u32| Some(Name::from(text(number))).filter(|name| !name.is_empty());
        IoNames {
            class: name(self.class),
            file_unknown: name(self.file_unknown),
            process_unknown: name(self.process_unknown),
            file: self.file.as_ref().map(|file| IoFile {
                path: text(file.path),
                mount: file.mount.map(text),
                file_system: text(file.file_system),
                inode: file.inode,
                removed: file.removed,
            }),
            process: self.process.as_ref().map(|process| IoProcess {
                id: process.id,
                command: text(process.command),
                known_by: text(process.known_by).into(),
            }),
        }
    }

    pub(super) fn write(&self, writer: &mut BitWriter) {
        for number in [self.class, self.file_unknown, self.process_unknown] {
            writer.number(number.into(), TEXT_LENGTH);
        }
        writer.flag(self.file.is_some());
        if let Some(file) = &self.file {
            writer.number(file.path.into(), TEXT_LENGTH);
            writer.flag(file.mount.is_some());
            if let Some(mount) = file.mount {
                writer.number(mount.into(), TEXT_LENGTH);
            }
            writer.number(file.file_system.into(), TEXT_LENGTH);
            writer.number(file.inode, INODE_LENGTH);
            writer.flag(file.removed);
        }
        writer.flag(self.process.is_some());
        if let Some(process) = &self.process {
            writer.number(process.id.into(), PROCESS_LENGTH);
            writer.number(process.command.into(), TEXT_LENGTH);
            writer.number(process.known_by.into(), TEXT_LENGTH);
        }
    }

    pub(super) fn read(reader: &mut BitReader<'_>) -> Self {
        let mut text = || reader.value(TEXT_LENGTH) as u32;
        let (class, file_unknown, process_unknown) = (text(), text(), text());
        let file = reader.flag().then(|| NumberedFile {
            path: reader.value(TEXT_LENGTH) as u32,
            mount: reader.flag().then(|| reader.value(TEXT_LENGTH) as u32),
            file_system: reader.value(TEXT_LENGTH) as u32,
            inode: reader.value(INODE_LENGTH),
            removed: reader.flag(),
        });
        let process = reader.flag().then(|| NumberedProcess {
            id: reader.value(PROCESS_LENGTH) as u32,
            command: reader.value(TEXT_LENGTH) as u32,
            known_by: reader.value(TEXT_LENGTH) as u32,
        });
        Self { class, file_unknown, process_unknown, file, process }
    }

    /// The numbers of its texts.
    pub(super) fn texts(&self) -> impl Iterator<Item = u32> {
        let file = self.file.iter().flat_map(|file| [file.path, file.mount.unwrap_or(0), file.file_system]);
        let process = self.process.iter().flat_map(|process| [process.command, process.known_by]);
        [self.class, self.file_unknown, self.process_unknown].into_iter().chain(file).chain(process)
    }
}
