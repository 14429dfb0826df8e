import {
  FILE_RIGHTS,
  type FileRights,
  type Mask,
  type RunRequest,
  type Sampler,
  type StepOutput,
  type StepRequest,
  type TenantLimit,
} from './calls.ts';
import { HANDLER_ERROR_TAGS, type HandlerError, ProtocolFault } from './errors.ts';
import type { CallHeader, DecodedCall } from './operations.ts';
import { MAX_PIXEL_BYTES, NO_PAGE_LIMIT, OP, STEP_OUTPUT } from './wire.ts';
import type { WordReader } from './words.ts';

/** Reads the calls of one frame's body in order, each with its bytes. Throws `ProtocolFault` on anything that is not exactly a call. */
export function decodeCalls(reader: WordReader, end: number, handle: (call: DecodedCall, bytes: number) => void): void {
  while (!reader.done) {
    const words = reader.enter(end);
    const op = reader.u32();
    const header: CallHeader = { inferlet: reader.u32(), queue: reader.u32(), id: reader.u32() };
    const call = decodeCall(reader, op, header);
    reader.leave(end);
    handle(call, words * 4);
  }
}

function decodeCall(reader: WordReader, op: number, { inferlet, queue, id }: CallHeader): DecodedCall {
  switch (op) {
    case OP.openInferlet:
      return {
        op: 'open-inferlet',
        inferlet,
        queue,
        id,
        maxPages: reader.u32(),
        maxPriority: reader.u32(),
        arrival: reader.wide(),
        name: reader.text(),
        epoch: reader.wide(),
        tenant: reader.text(),
        family: reader.text(),
        familyEpoch: reader.wide(),
        familyPages: reader.u32(),
        tenantPages: readTenantLimit(reader),
        functionName: reader.text(),
        traceparent: reader.text(),
      };
    case OP.setTenantLimit:
      return { op: 'set-tenant-limit', inferlet, queue, id, tenantPages: readTenantLimit(reader) };
    case OP.closeInferlet:
      return { op: 'close-inferlet', inferlet, queue, id };
    case OP.createQueue:
      return { op: 'create-queue', inferlet, queue, id, model: reader.u32() };
    case OP.closeQueue:
      return { op: 'close-queue', inferlet, queue, id };
    case OP.setPriority:
      return { op: 'set-priority', inferlet, queue, id, priority: reader.i32() };
    case OP.allocatePages:
      return { op: 'allocate-pages', inferlet, queue, id, first: reader.u32(), count: reader.u32() };
    case OP.freePages:
      return { op: 'free-pages', inferlet, queue, id, pages: reader.list() };
    case OP.allocateEmbeds:
      return { op: 'allocate-embeds', inferlet, queue, id, first: reader.u32(), count: reader.u32() };
    case OP.freeEmbeds:
      return { op: 'free-embeds', inferlet, queue, id, embeds: reader.list() };
    case OP.sharePages:
      return { op: 'share-pages', inferlet, queue, id, first: reader.u32(), pages: reader.list() };
    case OP.copySlots:
      return {
        op: 'copy-slots',
        inferlet,
        queue,
        id,
        source: reader.u32(),
        sourceOffset: reader.u32(),
        destination: reader.u32(),
        destinationOffset: reader.u32(),
        count: reader.u32(),
        shift: reader.i32(),
      };
    case OP.copyEmbeds:
      return { op: 'copy-embeds', inferlet, queue, id, sources: reader.list(), destinations: reader.list() };
    case OP.embedText:
      return {
        op: 'embed-text',
        inferlet,
        queue,
        id,
        tokens: reader.list(),
        positions: reader.list(),
        embeds: reader.list(),
      };
    case OP.embedImage:
      return { op: 'embed-image', inferlet, queue, id, positions: reader.list(), embeds: reader.list() };
    case OP.imagePixels:
      return { op: 'image-pixels', inferlet, queue, id, pixels: reader.bytes(MAX_PIXEL_BYTES) };
    case OP.imageFailed:
      return { op: 'image-failed', inferlet, queue, id, why: readError(reader) };
    case OP.forward:
    case OP.forwardScores:
      return {
        op: op === OP.forward ? 'forward' : 'forward-scores',
        inferlet,
        queue,
        id,
        inPages: reader.list(),
        inEmbeds: reader.list(),
        outPages: reader.list(),
        outEmbeds: reader.list(),
        mask: readMask(reader),
      };
    case OP.forwardWithAdapter:
      return {
        op: 'forward',
        inferlet,
        queue,
        id,
        adapter: reader.text(),
        inPages: reader.list(),
        inEmbeds: reader.list(),
        outPages: reader.list(),
        outEmbeds: reader.list(),
        mask: readMask(reader),
      };
    case OP.maskPage:
      return { op: 'mask-page', inferlet, queue, id, page: reader.u32(), slots: reader.u32() };
    case OP.nextDistribution:
      return { op: 'next-distribution', inferlet, queue, id, embed: reader.u32(), topK: reader.u32() };
    case OP.step:
      return { op: 'step', inferlet, queue, id, request: readStep(reader) };
    case OP.stepWithAdapter: {
      const adapter = reader.text();
      return { op: 'step', inferlet, queue, id, request: { ...readStep(reader), adapter } };
    }
    case OP.run:
      return { op: 'run', inferlet, queue, id, request: readRun(reader) };
    case OP.runConsumed:
      return { op: 'run-consumed', inferlet, queue, id, tokens: reader.u32() };
    case OP.runStop:
      return { op: 'run-stop', inferlet, queue, id };
    case OP.synchronize:
      return { op: 'synchronize', inferlet, queue, id };
    case OP.copyTokens:
      return {
        op: 'copy-tokens',
        inferlet,
        queue,
        id,
        sources: reader.list(),
        indices: reader.list(),
        destinations: reader.list(),
        positions: reader.list(),
      };
    case OP.exportPages:
      return {
        op: 'export-pages',
        inferlet,
        queue,
        id,
        persistent: readFlag(reader),
        name: reader.text(),
        pages: reader.list(),
      };
    case OP.importPages:
      return { op: 'import-pages', inferlet, queue, id, first: reader.u32(), name: reader.text() };
    case OP.unexport:
      return { op: 'unexport', inferlet, queue, id, name: reader.text() };
    case OP.listExports:
      return { op: 'list-exports', inferlet, queue, id };
    case OP.logProbabilities:
      return { op: 'log-probabilities', inferlet, queue, id, embed: reader.u32(), tokens: reader.list() };
    case OP.entropy:
      return { op: 'entropy', inferlet, queue, id, embed: reader.u32() };
    case OP.readEmbed:
      return { op: 'read-embed', inferlet, queue, id, embed: reader.u32() };
    case OP.setSpan:
      return { op: 'set-span', inferlet, queue, id, high: reader.u32(), low: reader.u32() };
    case OP.setWaiting:
      return { op: 'set-waiting', inferlet, queue, id, waiting: readFlag(reader) };
    case OP.fileOpen:
      return {
        op: 'file-open',
        inferlet,
        queue,
        id,
        first: reader.u32(),
        name: reader.text(),
        write: readFlag(reader),
        functionName: reader.text(),
      };
    case OP.fileSave:
      return {
        op: 'file-save',
        inferlet,
        queue,
        id,
        name: reader.text(),
        persistent: readFlag(reader),
        rights: readRights(reader),
        functionName: reader.text(),
        pages: reader.list(),
      };
    case OP.fileUnlock:
      return { op: 'file-unlock', inferlet, queue, id, name: reader.text() };
    case OP.fileRemove:
      return { op: 'file-remove', inferlet, queue, id, name: reader.text(), functionName: reader.text() };
    case OP.fileList:
      return { op: 'file-list', inferlet, queue, id, prefix: reader.text(), functionName: reader.text() };
    case OP.listAdapters:
      return { op: 'list-adapters', inferlet, queue, id };
    case OP.loadAdapter:
      return { op: 'load-adapter', inferlet, queue, id, name: reader.text() };
    default:
      throw new ProtocolFault('malformed', `unknown operation ${op}`);
  }
}

function readStep(reader: WordReader): StepRequest {
  return {
    tokens: reader.list(),
    positions: reader.list(),
    inPages: reader.list(),
    outPages: reader.list(),
    mask: readMask(reader),
    rows: reader.u32(),
    output: readOutput(reader),
    allowed: readAllowed(reader),
  };
}

function readRun(reader: WordReader): RunRequest {
  return {
    token: reader.u32(),
    position: reader.u32(),
    pages: reader.list(),
    maxTokens: reader.u32(),
    sampler: readSampler(reader),
    stopTokens: reader.list(),
  };
}

function readOutput(reader: WordReader): StepOutput {
  const tag = reader.u32();
  switch (tag) {
    case STEP_OUTPUT.none:
      return { tag: 'none' };
    case STEP_OUTPUT.sample:
      return { tag: 'sample', val: readSampler(reader) };
    case STEP_OUTPUT.distributions:
      return { tag: 'distributions', val: reader.u32() };
    default:
      throw new ProtocolFault('malformed', `unknown output ${tag} of a step`);
  }
}

function readSampler(reader: WordReader): Sampler {
  return { temperature: reader.f32(), topK: reader.u32(), topP: reader.f32(), minP: reader.f32(), seed: reader.u32() };
}

function readMask(reader: WordReader): Mask | undefined {
  return readFlag(reader) ? { runs: reader.list(), rowLengths: reader.list() } : undefined;
}

/** An empty list allows every token. */
function readAllowed(reader: WordReader): Uint32Array | undefined {
  const count = reader.u32();
  return count === 0 ? undefined : reader.words(count);
}

function readTenantLimit(reader: WordReader): TenantLimit {
  const pages = reader.u32();
  return { pages: pages === NO_PAGE_LIMIT ? null : pages, readAt: reader.wide() };
}

function readFlag(reader: WordReader): boolean {
  const flag = reader.u32();
  if (flag > 1) throw new ProtocolFault('malformed', `a flag of ${flag}`);
  return flag === 1;
}

function readError(reader: WordReader): HandlerError {
  const tag = HANDLER_ERROR_TAGS[reader.u32()];
  if (tag === undefined) throw new ProtocolFault('malformed', 'unknown error code');
  return { tag, val: reader.text() };
}

function readRights(reader: WordReader): FileRights {
  const code = reader.u32();
  const rights = FILE_RIGHTS[code];
  if (rights === undefined) throw new ProtocolFault('malformed', `unknown rights ${code} of a file`);
  return rights;
}
