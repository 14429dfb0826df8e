import type { Inbox } from '#scheduler/invocations/inbox.ts';
import type { Message } from '#wit/generated/host.ts';
import type { MessageSource } from '../host/session-state.ts';

/**
 * The client's messages to one attempt of an invocation, in the shape of `session.receive`.
 *
 * @param handled see `InboxHandler.handled`
 */
export function inboxSource(inbox: Inbox, id: string, epoch: number, handled?: (token: Buffer) => void): MessageSource {
  return {
    attach: ({ message, closed }) =>
      inbox.attach(
        id,
        {
          message: (received) => {
            const content: Message =
              'text' in received ? { tag: 'text', val: received.text } : { tag: 'bytes', val: received.bytes };
            return message(content);
          },
          closed,
          ...(handled && { handled }),
        },
        epoch,
      ),
  };
}
