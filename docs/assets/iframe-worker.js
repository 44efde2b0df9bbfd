// Browsers start no worker for a page opened from disk. There the search runs in a hidden frame that has what a worker
// has; the theme looks for the name `IFrameWorker` to find its scripts.
const load = (page, address) =>
  new Promise((resolve, reject) => {
    const script = Object.assign(page.createElement("script"), { src: address, onload: resolve, onerror: reject });
    page.body.append(script);
  });

window.IFrameWorker = class extends EventTarget {
  constructor(address) {
    super();
    this.frame = Object.assign(document.createElement("iframe"), { hidden: true });
    document.body.append(this.frame);
    this.inside = this.frame.contentWindow;
    const page = this.inside.document;
    page.open();
    page.write("<body></body>");
    page.close();
    this.inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
    this.inside.importScripts = async (...addresses) => {
      for (const each of addresses) await load(page, each);
    };
    this.ready = load(page, new URL(address, location).href);
  }

  async postMessage(data) {
    await this.ready;
    this.inside.dispatchEvent(new MessageEvent("message", { data }));
  }

  terminate() {
    this.frame.remove();
  }
};

if (location.protocol === "file:") window.Worker = window.IFrameWorker;
