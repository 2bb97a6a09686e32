//! Calls the part of the model that an action is for.

use super::{Body, Model, Object, ObjectId};
use crate::content::{Content, fill};
use crate::workload::{Action, Outcome, System, Value};
use rustix::io::Errno;
use std::collections::BTreeMap;
use vfs::{Kind, OpenFlags};

impl System for Model {
    fn change_name(&mut self, action: &Action) -> Option<Outcome> {
        Some(match action {
            Action::Create { path, kind, mode } => {
                let body = match kind {
                    Kind::File => Body::File(Content::default()),
                    Kind::Directory => Body::Directory { entries: BTreeMap::new(), parent: 0 },
                    _ => Body::Other,
                };
                self.create(path, Object::new(*kind, *mode, body)).map(|_| Value::Done)
            }
            Action::Symlink { path, target } => {
                let body = Body::Symlink(target.as_bytes().into());
                self.create(path, Object::new(Kind::Symlink, 0o777, body)).map(|_| Value::Done)
            }
            Action::Temporary { dir, slot, exclusive } => self.temporary(dir, *slot, *exclusive),
            Action::Link { from, to } => {
                self.resolve(from).and_then(|node| self.link_object(node, to))
            }
            Action::LinkOpen { slot, to } => {
                let node = self.slot(*slot).map(|open| open.object);
                node.and_then(|node| self.link_object(node, to))
            }
            Action::Unlink { path } => self.unlink(path),
            Action::RemoveDir { path } => self.remove_dir(path),
            Action::Rename { from, to, flags } => self.rename(from, to, *flags),
            _ => return None,
        })
    }

    fn change_attributes(&mut self, action: &Action) -> Option<Outcome> {
        let changed = |model: &mut Self, path: &str, change: &dyn Fn(&mut Object)| {
            model.resolve(path).map(|id| change(model.object_mut(id))).map(|()| Value::Done)
        };
        Some(match action {
            Action::SetMode { path, mode } => changed(self, path, &|object| object.mode = *mode),
            Action::SetOwner { path, uid, gid } => changed(self, path, &|object| {
                (object.uid, object.gid) = (*uid, *gid);
            }),
            Action::SetTimes { path, .. } => changed(self, path, &|_| ()),
            Action::SetXattr { path, name, tag, length, flags } => {
                self.set_xattr(path, name, fill(*tag, *length), *flags)
            }
            Action::RemoveXattr { path, name } => self.remove_xattr(path, name),
            Action::GetXattr { path, name, room } => self.get_xattr(path, name, *room),
            Action::ListXattr { path } => self
                .resolve(path)
                .map(|id| Value::Names(self.object(id).xattrs.keys().cloned().collect())),
            _ => return None,
        })
    }

    fn look(&mut self, action: &Action) -> Option<Outcome> {
        Some(match action {
            Action::Stat { path } => self.resolve(path).map(|id| Value::Stat(self.stat(id))),
            Action::StatOpen { slot } => {
                self.slot(*slot).map(|open| Value::Stat(self.stat(open.object)))
            }
            Action::ReadLink { path } => {
                self.resolve(path).and_then(|id| match &self.object(id).body {
                    Body::Symlink(target) => Ok(Value::Bytes(target.clone())),
                    _ => Err(Errno::INVAL),
                })
            }
            Action::ReadDir { path } => self.resolve(path).and_then(|id| {
                let entries = self.object(id).entries()?.iter();
                let told = |(name, &id): (&Vec<u8>, &ObjectId)| {
                    (name.clone(), self.object(id).kind.d_type())
                };
                Ok(Value::Entries(entries.map(told).collect()))
            }),
            _ => return None,
        })
    }

    fn change_content(&mut self, action: &Action) -> Outcome {
        match *action {
            Action::Open { ref path, slot, flags } => self.open(path, slot, OpenFlags(flags)),
            Action::Close { slot } => self.close(slot),
            Action::Write { slot, tag, length } => self.write(slot, None, tag, length),
            Action::WriteAt { slot, tag, offset, length }
            | Action::WriteParts { slot, tag, offset, length, .. } => {
                self.write(slot, Some(offset), tag, length)
            }
            Action::Read { slot, length } => self.read(slot, None, length),
            Action::ReadAt { slot, offset, length } => self.read(slot, Some(offset), length),
            Action::Seek { slot, offset, whence } => self.seek(slot, offset, whence),
            Action::Truncate { ref path, size } => {
                self.resolve(path).and_then(|id| self.resize(id, size))
            }
            Action::TruncateOpen { slot, size } => {
                let object = self.slot(slot)?.object;
                self.writable(slot).map_err(|_| Errno::INVAL)?;
                self.resize(object, size)
            }
            Action::Allocate { slot, mode, offset, length } => {
                self.allocate(slot, mode, offset, length)
            }
            Action::CopyRange { from, from_offset, to, to_offset, length } => {
                self.copy_range((from, to), (from_offset, to_offset), length)
            }
            Action::Relink { from, from_offset, to, to_offset, length } => {
                self.relink((from, to), (from_offset, to_offset), length)
            }
            Action::Map { slot, .. } => self.map(slot),
            Action::StoreMapped { slot, tag, offset, length } => {
                self.store_mapped(slot, tag, offset, length)
            }
            Action::Sync { slot, .. } => self.sync(slot),
            Action::SyncAll => {
                self.objects.values_mut().for_each(Object::make_durable);
                Ok(Value::Done)
            }
            Action::Compact => Ok(Value::Done),
            Action::Rewrite { ref path } => {
                self.resolve(path).and_then(|id| match self.object(id).kind {
                    Kind::File => Ok(Value::Done),
                    Kind::Directory => Err(Errno::ISDIR),
                    _ => Err(Errno::INVAL),
                })
            }
            _ => Err(Errno::NOSYS),
        }
    }
}
