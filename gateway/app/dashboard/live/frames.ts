/** Frames for the script of a followed page. `../routes.ts` adds the frame `trouble`, which ends a failed stream. */
export type LiveFrame =
  | { readonly event: 'fragment'; readonly data: { readonly id: string; readonly html: string } }
  /** New events of an invocation: `text` for its output, `rows` for its list of events. `id` is the id of the last of these events. */
  | { readonly event: 'events'; readonly id: string; readonly data: { readonly text: string; readonly rows: string } }
  /** Nothing will follow. */
  | { readonly event: 'end'; readonly data: { readonly why: 'signed-out' | 'complete' } };

export function frameText(frame: LiveFrame): string {
  const id = frame.event === 'events' ? `id: ${frame.id}\n` : '';
  return `${id}event: ${frame.event}\ndata: ${JSON.stringify(frame.data)}\n\n`;
}
