/** Frames for the script of a followed page. */
export type LiveFrame =
  | { readonly event: 'fragment'; readonly data: { readonly id: string; readonly html: string } }
  /** New events of an invocation: text of its output, and rows of its list of events. `id` is the last event's id. */
  | { readonly event: 'events'; readonly id: string; readonly data: { readonly text: string; readonly rows: string } }
  /** Nothing will follow. */
  | { readonly event: 'end'; readonly data: { readonly why: 'signed-out' | 'complete' } };

export function frameText(frame: LiveFrame): string {
  const id = frame.event === 'events' ? `id: ${frame.id}\n` : '';
  return `${id}event: ${frame.event}\ndata: ${JSON.stringify(frame.data)}\n\n`;
}
