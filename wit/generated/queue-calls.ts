// Generated from wit/*.wit by `npm run generate`. Do not edit: a test compares this file with its source.
import type { AdapterInfo, Dimensions, Distribution, ExportInfo, HandlerError, Imported, KvFilesFileInfo, LogitChanges, Mask, Outcome, Residency, Run, RunRequest, StepRequest, StepResult, Tier } from './host.ts';

/** The functions, by interface and name. Each takes the record of its call: its name, and its arguments by name. */
export interface QueueFunctions {
  'allocate/page-size': (call: { readonly op: 'page-size' }) => number;
  'allocate/allocate-pages': (call: { readonly op: 'allocate-pages'; readonly count: number }) => Outcome<Uint32Array, HandlerError>;
  'allocate/free-pages': (call: { readonly op: 'free-pages'; readonly pages: Uint32Array }) => void;
  'allocate/allocate-embeds': (call: { readonly op: 'allocate-embeds'; readonly count: number }) => Outcome<Uint32Array, HandlerError>;
  'allocate/free-embeds': (call: { readonly op: 'free-embeds'; readonly embeds: Uint32Array }) => void;
  'allocate/share-pages': (call: { readonly op: 'share-pages'; readonly pages: Uint32Array }) => Outcome<Uint32Array, HandlerError>;
  'allocate/copy-slots': (call: { readonly op: 'copy-slots'; readonly source: number; readonly sourceOffset: number; readonly destination: number; readonly destinationOffset: number; readonly count: number; readonly shift: number }) => void;
  'allocate/copy-tokens': (call: { readonly op: 'copy-tokens'; readonly sources: Uint32Array; readonly indices: Uint32Array; readonly destinations: Uint32Array; readonly positions: Uint32Array }) => void;
  'allocate/copy-embeds': (call: { readonly op: 'copy-embeds'; readonly sources: Uint32Array; readonly destinations: Uint32Array }) => void;
  'allocate/export-pages': (call: { readonly op: 'export-pages'; readonly pages: Uint32Array; readonly name: string; readonly persistent: boolean }) => Promise<Outcome<undefined, HandlerError>>;
  'allocate/import-pages': (call: { readonly op: 'import-pages'; readonly name: string }) => Promise<Outcome<Imported, HandlerError>>;
  'allocate/make-durable': (call: { readonly op: 'make-durable'; readonly name: string }) => Promise<Outcome<undefined, HandlerError>>;
  'allocate/unexport': (call: { readonly op: 'unexport'; readonly name: string }) => Promise<Outcome<undefined, HandlerError>>;
  'allocate/list-exports': (call: { readonly op: 'list-exports' }) => Promise<Outcome<readonly ExportInfo[], HandlerError>>;
  'allocate/export-residency': (call: { readonly op: 'export-residency'; readonly name: string }) => Promise<Outcome<Residency, HandlerError>>;
  'allocate/pin-export': (call: { readonly op: 'pin-export'; readonly name: string; readonly leaseMs: number }) => Promise<Outcome<Residency, HandlerError>>;
  'allocate/unpin-export': (call: { readonly op: 'unpin-export'; readonly name: string }) => Promise<Outcome<Residency, HandlerError>>;
  'allocate/retain-export': (call: { readonly op: 'retain-export'; readonly name: string; readonly nextUseMs: number }) => Promise<Outcome<Residency, HandlerError>>;
  'allocate/prefetch-export': (call: { readonly op: 'prefetch-export'; readonly name: string }) => Promise<Outcome<Residency, HandlerError>>;
  'allocate/demote-export': (call: { readonly op: 'demote-export'; readonly name: string; readonly tier: Tier }) => Promise<Outcome<Residency, HandlerError>>;
  'forward/forward': (call: { readonly op: 'forward'; readonly inPages: Uint32Array; readonly inEmbeds: Uint32Array; readonly outPages: Uint32Array; readonly outEmbeds: Uint32Array; readonly mask: Mask | undefined }) => void;
  'forward/mask-page': (call: { readonly op: 'mask-page'; readonly page: number; readonly slots: number }) => void;
  'input-text/embed-text': (call: { readonly op: 'embed-text'; readonly tokens: Uint32Array; readonly positions: Uint32Array; readonly embeds: Uint32Array }) => void;
  'output-text/next-distribution': (call: { readonly op: 'next-distribution'; readonly embed: number; readonly topK: number }) => Promise<Outcome<Distribution, HandlerError>>;
  'output-text/log-probabilities': (call: { readonly op: 'log-probabilities'; readonly embed: number; readonly tokens: Uint32Array }) => Promise<Outcome<Float32Array, HandlerError>>;
  'output-text/entropy': (call: { readonly op: 'entropy'; readonly embed: number }) => Promise<Outcome<number, HandlerError>>;
  'output-text/read-embed': (call: { readonly op: 'read-embed'; readonly embed: number }) => Promise<Outcome<Float32Array, HandlerError>>;
  'fused/step': (call: { readonly op: 'step'; readonly request: StepRequest }) => Promise<Outcome<StepResult, HandlerError>>;
  'penalties/start-run': (call: { readonly op: 'start-run'; readonly request: RunRequest; readonly changes: LogitChanges }) => Run;
  'introspect/forward-scores': (call: { readonly op: 'forward-scores'; readonly inPages: Uint32Array; readonly inEmbeds: Uint32Array; readonly outPages: Uint32Array; readonly outEmbeds: Uint32Array; readonly mask: Mask | undefined }) => Promise<Outcome<Float32Array, HandlerError>>;
  'kv-files/make-durable': (call: { readonly op: 'make-durable'; readonly name: string }) => Promise<Outcome<undefined, HandlerError>>;
  'kv-files/remove': (call: { readonly op: 'remove'; readonly name: string }) => Promise<Outcome<undefined, HandlerError>>;
  'kv-files/files': (call: { readonly op: 'files'; readonly prefix: string }) => Promise<Outcome<readonly KvFilesFileInfo[], HandlerError>>;
  'input-image/image-embeds': (call: { readonly op: 'image-embeds'; readonly size: Dimensions }) => Outcome<number, HandlerError>;
  'input-image/embed-image': (call: { readonly op: 'embed-image'; readonly image: Uint8Array; readonly positions: Uint32Array; readonly embeds: Uint32Array }) => Promise<Outcome<undefined, HandlerError>>;
  'adapter/list-adapters': (call: { readonly op: 'list-adapters' }) => Promise<Outcome<readonly AdapterInfo[], HandlerError>>;
  'adapter/load-adapter': (call: { readonly op: 'load-adapter'; readonly name: string }) => Promise<Outcome<undefined, HandlerError>>;
  'adapter/forward-with-adapter': (call: { readonly op: 'forward-with-adapter'; readonly adapter: string; readonly inPages: Uint32Array; readonly inEmbeds: Uint32Array; readonly outPages: Uint32Array; readonly outEmbeds: Uint32Array; readonly mask: Mask | undefined }) => void;
  'adapter/step': (call: { readonly op: 'step'; readonly adapter: string; readonly request: StepRequest }) => Promise<Outcome<StepResult, HandlerError>>;
}

/** A call on a queue. */
export type QueueCall = Parameters<QueueFunctions[keyof QueueFunctions]>[0];

/** Host functions by interface and core name. Each makes the record of its call and gives the record to `pass`. */
export const queueCalls = <Queue, Result>(pass: (queue: Queue, call: QueueCall) => Result) => ({
  'allocate': {
    'page-size': (_: unknown, queue: Queue) => pass(queue, { op: 'page-size' }),
    'allocate-pages': (_: unknown, queue: Queue, count: number) => pass(queue, { op: 'allocate-pages', count }),
    'free-pages': (_: unknown, queue: Queue, pages: Uint32Array) => pass(queue, { op: 'free-pages', pages }),
    'allocate-embeds': (_: unknown, queue: Queue, count: number) => pass(queue, { op: 'allocate-embeds', count }),
    'free-embeds': (_: unknown, queue: Queue, embeds: Uint32Array) => pass(queue, { op: 'free-embeds', embeds }),
    'share-pages': (_: unknown, queue: Queue, pages: Uint32Array) => pass(queue, { op: 'share-pages', pages }),
    'copy-slots': (_: unknown, queue: Queue, source: number, sourceOffset: number, destination: number, destinationOffset: number, count: number, shift: number) => pass(queue, { op: 'copy-slots', source, sourceOffset, destination, destinationOffset, count, shift }),
    'copy-tokens': (_: unknown, queue: Queue, sources: Uint32Array, indices: Uint32Array, destinations: Uint32Array, positions: Uint32Array) => pass(queue, { op: 'copy-tokens', sources, indices, destinations, positions }),
    'copy-embeds': (_: unknown, queue: Queue, sources: Uint32Array, destinations: Uint32Array) => pass(queue, { op: 'copy-embeds', sources, destinations }),
    'export-pages': (_: unknown, queue: Queue, pages: Uint32Array, name: string, persistent: boolean) => pass(queue, { op: 'export-pages', pages, name, persistent }),
    'import-pages': (_: unknown, queue: Queue, name: string) => pass(queue, { op: 'import-pages', name }),
    'make-durable': (_: unknown, queue: Queue, name: string) => pass(queue, { op: 'make-durable', name }),
    'unexport': (_: unknown, queue: Queue, name: string) => pass(queue, { op: 'unexport', name }),
    'list-exports': (_: unknown, queue: Queue) => pass(queue, { op: 'list-exports' }),
    'export-residency': (_: unknown, queue: Queue, name: string) => pass(queue, { op: 'export-residency', name }),
    'pin-export': (_: unknown, queue: Queue, name: string, leaseMs: number) => pass(queue, { op: 'pin-export', name, leaseMs }),
    'unpin-export': (_: unknown, queue: Queue, name: string) => pass(queue, { op: 'unpin-export', name }),
    'retain-export': (_: unknown, queue: Queue, name: string, nextUseMs: number) => pass(queue, { op: 'retain-export', name, nextUseMs }),
    'prefetch-export': (_: unknown, queue: Queue, name: string) => pass(queue, { op: 'prefetch-export', name }),
    'demote-export': (_: unknown, queue: Queue, name: string, tier: Tier) => pass(queue, { op: 'demote-export', name, tier }),
  },
  'forward': {
    'forward': (_: unknown, queue: Queue, inPages: Uint32Array, inEmbeds: Uint32Array, outPages: Uint32Array, outEmbeds: Uint32Array, mask: Mask | undefined) => pass(queue, { op: 'forward', inPages, inEmbeds, outPages, outEmbeds, mask }),
    'mask-page': (_: unknown, queue: Queue, page: number, slots: number) => pass(queue, { op: 'mask-page', page, slots }),
  },
  'input-text': {
    'embed-text': (_: unknown, queue: Queue, tokens: Uint32Array, positions: Uint32Array, embeds: Uint32Array) => pass(queue, { op: 'embed-text', tokens, positions, embeds }),
  },
  'output-text': {
    'next-distribution': (_: unknown, queue: Queue, embed: number, topK: number) => pass(queue, { op: 'next-distribution', embed, topK }),
    'log-probabilities': (_: unknown, queue: Queue, embed: number, tokens: Uint32Array) => pass(queue, { op: 'log-probabilities', embed, tokens }),
    'entropy': (_: unknown, queue: Queue, embed: number) => pass(queue, { op: 'entropy', embed }),
    'read-embed': (_: unknown, queue: Queue, embed: number) => pass(queue, { op: 'read-embed', embed }),
  },
  'fused': {
    'step': (_: unknown, queue: Queue, request: StepRequest) => pass(queue, { op: 'step', request }),
  },
  'penalties': {
    'start-run': (_: unknown, queue: Queue, request: RunRequest, changes: LogitChanges) => pass(queue, { op: 'start-run', request, changes }),
  },
  'introspect': {
    'forward-scores': (_: unknown, queue: Queue, inPages: Uint32Array, inEmbeds: Uint32Array, outPages: Uint32Array, outEmbeds: Uint32Array, mask: Mask | undefined) => pass(queue, { op: 'forward-scores', inPages, inEmbeds, outPages, outEmbeds, mask }),
  },
  'kv-files': {
    'make-durable': (_: unknown, queue: Queue, name: string) => pass(queue, { op: 'make-durable', name }),
    'remove': (_: unknown, queue: Queue, name: string) => pass(queue, { op: 'remove', name }),
    'files': (_: unknown, queue: Queue, prefix: string) => pass(queue, { op: 'files', prefix }),
  },
  'input-image': {
    'image-embeds': (_: unknown, queue: Queue, size: Dimensions) => pass(queue, { op: 'image-embeds', size }),
    'embed-image': (_: unknown, queue: Queue, image: Uint8Array, positions: Uint32Array, embeds: Uint32Array) => pass(queue, { op: 'embed-image', image, positions, embeds }),
  },
  'adapter': {
    'list-adapters': (_: unknown, queue: Queue) => pass(queue, { op: 'list-adapters' }),
    'load-adapter': (_: unknown, queue: Queue, name: string) => pass(queue, { op: 'load-adapter', name }),
    'forward-with-adapter': (_: unknown, queue: Queue, adapter: string, inPages: Uint32Array, inEmbeds: Uint32Array, outPages: Uint32Array, outEmbeds: Uint32Array, mask: Mask | undefined) => pass(queue, { op: 'forward-with-adapter', adapter, inPages, inEmbeds, outPages, outEmbeds, mask }),
    'step': (_: unknown, queue: Queue, adapter: string, request: StepRequest) => pass(queue, { op: 'step', adapter, request }),
  },
});
