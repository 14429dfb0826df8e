import { endianness } from 'node:os';
import type { Versions } from '#scheduler/links/versions.ts';

/** Versions of the frames that this side speaks. A new version keeps the one before: machines are upgraded one after another. */
export const PROTOCOL_VERSIONS: Versions = { oldest: 1, newest: 1 };

/**
 * Version of all frames, hellos included, until both sides have agreed on a version. Never change it: sides of any two releases must be able to
 * read each other's hello and refusal.
 */
export const HELLO_VERSION = 1;

/** Longest step of a host on the CPU, in milliseconds. The host cannot answer during a step; the supervisor ends a host that computes for longer. */
export const LONGEST_STEP_MS = 60_000;

/**
 * Longest wait for a tenant's new stream to open, in milliseconds. The host answers three times (connection, handshake, hello), and a host on the
 * CPU may compute a step before each answer.
 */
export const LONGEST_OPENING_MS = 3 * LONGEST_STEP_MS;

/** Maximum frame, header included. The client refuses a call that does not fit one frame. */
export const MAX_FRAME_BYTES = 4 * 1024 * 1024;
export const MAX_FRAME_WORDS = MAX_FRAME_BYTES / 4;

/** Words of a frame's header: length, then version and kind. */
export const FRAME_HEADER_WORDS = 2;

/** Maximum text field (error texts, ids), in bytes of UTF-8. The writer cuts longer texts; the reader refuses them. */
export const MAX_TEXT_BYTES = 4096;

/** Maximum JSON field (hello, stats, text results), in bytes. */
export const MAX_JSON_BYTES = 1024 * 1024;

/** Maximum bytes of one image's pixels; they go in one frame, with room for the call's header. */
export const MAX_PIXEL_BYTES = MAX_FRAME_BYTES - 1024;

/** Bytes of each piece of pages that go to another host; the last one may have fewer. */
export const PIECE_BYTES = 1024 * 1024;

/** Maximum texts of one `encode` call: the host sorts them by their lengths. */
export const MAX_ENCODED_TEXTS = 4096;

/** Maximum floats of one result, which goes in one frame. */
export const MAX_RESULT_FLOATS = (MAX_FRAME_BYTES - 1024) / 4;

/** Maximum embeds of one inferlet on one model. */
export const MAX_EMBEDS = 262_144;

/** Maximum items in one list of a call. Both ends refuse longer lists unread: one call must not hold up a process. */
export const MAX_LIST = 262_144;

/** Maximum tokens that an inferlet names as already `chosen` for a run with penalties. Sorting them takes the host's thread half a millisecond. */
export const MAX_CHOSEN = 8192;

/** Maximum addresses in one list of a call. The host orders calls by each address, which costs it a quarter of a microsecond. */
export const MAX_ADDRESSES = 8192;

/** Addresses that the client reserves for the pages of one import; the host refuses larger imports. */
export const MAX_IMPORT_PAGES = 65_536;

/** Maximum tokens that the host decodes in a run beyond those that the inferlet has consumed. */
export const RUN_WINDOW_TOKENS = 256;

/** Encodes that a tenant's pages have no limit. */
export const NO_PAGE_LIMIT = 0xffff_ffff;

/** Bits of a stats request's flags. */
export const STATS = { reset: 1, modelsOnly: 2 } as const;

export const FRAME = {
  hello: 1,
  calls: 2,
  results: 3,
  statsRequest: 4,
  stats: 5,
  error: 6,
  terminated: 7,
  usage: 8,
  held: 9,
  alive: 10,
} as const;
export type FrameKind = (typeof FRAME)[keyof typeof FRAME];

if (endianness() !== 'LE') throw new Error('the GPU host protocol needs a little-endian machine');
