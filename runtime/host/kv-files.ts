import type { Distribution, FileInfo } from '#gpu-host/protocol/calls.ts';
import { err, type Outcome, ok, refuseName } from '#gpu-host/protocol/errors.ts';
import type { Access, Rights } from '#wit/generated/host.ts';
import type { Inferlet } from './inferlet.ts';
import { KvFile } from './kv-file.ts';
import { makeDurable } from './names/durable-names.ts';
import { listNames, removeName } from './names/named-pages.ts';
import type { DeviceQueue } from './queue.ts';

/** Implements `wit/kv-files.wit`. */
export const kvFiles = {
  '[constructor]file': (inferlet: Inferlet, queue: DeviceQueue, name: string | undefined, access: Access): KvFile =>
    KvFile.open(inferlet, queue, name, access === 'write'),
  '[method]file.ready': (_inferlet: Inferlet, self: KvFile): Promise<Outcome<undefined>> => self.ready(),
  '[method]file.tokens': (_inferlet: Inferlet, self: KvFile): number => self.tokens,
  '[method]file.next-position': (_inferlet: Inferlet, self: KvFile): number => self.nextPosition,
  '[method]file.pages': (_inferlet: Inferlet, self: KvFile): Uint32Array => self.pages,
  '[method]file.reserve': (_inferlet: Inferlet, self: KvFile, tokens: number): Outcome<Uint32Array> =>
    self.reserve(tokens),
  '[method]file.filled': (_inferlet: Inferlet, self: KvFile, tokens: number, nextPosition: number): void =>
    self.filled(tokens, nextPosition),
  '[method]file.pred': (
    _inferlet: Inferlet,
    self: KvFile,
    tokens: Uint32Array,
    positions: Uint32Array,
    topK: number,
  ): Promise<Outcome<readonly Distribution[]>> => self.pred(tokens, positions, topK),
  '[method]file.fork': (_inferlet: Inferlet, self: KvFile): KvFile => self.fork(),
  '[method]file.extract': (
    _inferlet: Inferlet,
    self: KvFile,
    indices: Uint32Array,
    renumber: number | undefined,
  ): KvFile => self.extract(indices, renumber),
  '[method]file.merge': (
    _inferlet: Inferlet,
    self: KvFile,
    other: KvFile,
    keepPositions: boolean,
  ): Promise<Outcome<undefined>> => self.merge(other, keepPositions),
  '[method]file.save': (
    _inferlet: Inferlet,
    self: KvFile,
    name: string,
    persistent: boolean,
    rights: Rights,
  ): Promise<Outcome<undefined>> => self.save(name, persistent, rights),
  '[method]file.unlock': (_inferlet: Inferlet, self: KvFile): void => self.unlock(),
  '[resource-drop]file': (_inferlet: Inferlet, self: KvFile): void => self.drop(),

  remove: (inferlet: Inferlet, queue: DeviceQueue, name: string): Promise<Outcome<undefined>> => {
    const refused = refuseName(name);
    if (refused) return Promise.resolve(err(refused));
    const offered = queue.offering('kv-files');
    if (offered.tag === 'err') return Promise.resolve(offered);
    const { functionName } = inferlet.description;
    const call = { op: 'file-remove', name, functionName } as const;
    return removeName({ inferlet, queue, kind: 'file', name }, (side) => side.device.ask(side.queue, call));
  },
  'make-durable': (inferlet: Inferlet, queue: DeviceQueue, name: string): Promise<Outcome<undefined>> => {
    const refused = refuseName(name);
    if (refused) return Promise.resolve(err(refused));
    const offered = queue.offering('kv-files');
    if (offered.tag === 'err') return Promise.resolve(offered);
    const { functionName } = inferlet.description;
    return makeDurable({ inferlet, queue, kind: 'file', name }, (side) =>
      side.device.openFile(side.queue, name, false, functionName),
    );
  },
  files: (inferlet: Inferlet, queue: DeviceQueue, prefix: string): Promise<Outcome<readonly FileInfo[]>> => {
    const offered = queue.offering('kv-files');
    if (offered.tag === 'err') return Promise.resolve(offered);
    // A prefix that is not a valid name begins no valid name.
    if (prefix !== '' && refuseName(prefix)) return Promise.resolve(ok([]));
    const { functionName } = inferlet.description;
    const call = { op: 'file-list', prefix, functionName } as const;
    return listNames(
      { inferlet, queue, kind: 'file' },
      (side) => side.device.ask(side.queue, call),
      (name, { tokens, nextPosition, access }) =>
        access && name.startsWith(prefix)
          ? { name, tokens, nextPosition, persistent: true, rights: access.rights, owner: access.owner, locked: false }
          : null,
    );
  },
};
