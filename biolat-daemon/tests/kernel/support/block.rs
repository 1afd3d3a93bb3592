//! Block devices and their attributes in sysfs.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Returns an attribute of a device in sysfs, or an empty string if there is none.
pub(crate) fn attribute(device: &str, name: &str) -> String {
    fs::read_to_string(folder(device).join(name)).unwrap_or_default().trim().to_owned()
}

pub(crate) fn set_attribute(device: &str, name: &str, value: &str) {
    let path = folder(device).join(name);
    fs::write(&path, value).unwrap_or_else(|error| panic!("{} = {value}: {error}", path.display()));
}

pub(crate) fn number(device: &str, name: &str) -> u64 {
    let value = attribute(device, name);
    let hexadecimal = value.strip_prefix("0x").map(|digits| u64::from_str_radix(digits, 16).unwrap());
    hexadecimal.unwrap_or_else(|| value.parse().unwrap_or_else(|_| panic!("{device} {name}: {value}")))
}

/// Returns the names of the devices with this attribute value, sorted.
pub(crate) fn devices_with(attribute_name: &str, value: &str) -> Vec<String> {
    let entries = fs::read_dir("/sys/block").unwrap().flatten();
    let names = entries.map(|entry| entry.file_name().into_string().unwrap());
    let mut names: Vec<_> = names.filter(|name| attribute(name, attribute_name) == value).collect();
    names.sort();
    names
}

/// Returns the only device with this attribute value.
pub(crate) fn device_with(attribute_name: &str, value: &str) -> String {
    let names = devices_with(attribute_name, value);
    assert_eq!(names.len(), 1, "devices with {attribute_name} = {value}: {names:?}");
    names[0].clone()
}

pub(crate) fn path(device: &str) -> PathBuf {
    Path::new("/dev").join(device)
}

fn folder(device: &str) -> PathBuf {
    Path::new("/sys/block").join(device)
}
