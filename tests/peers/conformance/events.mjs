/** The events of a session's streams, for clients that come back for what they missed. */
export class EventStore {
  #events = [];

  async storeEvent(stream, message) {
    this.#events.push({ stream, message });
    return `${stream}::${this.#events.length - 1}`;
  }

  async replayEventsAfter(last, { send }) {
    const [stream, index] = last.split("::");
    for (const [number, event] of this.#events.entries()) {
      const missed = number > Number(index) && event.stream === stream;
      // A priming event is an empty message.
      if (missed && Object.keys(event.message).length > 0) {
        await send(`${stream}::${number}`, event.message);
      }
    }
    return stream;
  }
}
