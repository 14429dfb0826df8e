/** Visible ASCII characters without spaces: every header carries them unchanged. */
export const VISIBLE_ASCII = /^[\x21-\x7e]+$/;

/** Maximum characters of a key that a client chooses for invocations, such as `Concurrency-Key`. */
export const MAX_CHOSEN_KEY_LENGTH = 256;
