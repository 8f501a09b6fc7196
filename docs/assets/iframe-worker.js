// Browsers start no worker for a page that was opened as a file. The site's search then runs in a hidden frame instead.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.url = url;
      this.onmessage = null;
      this.waiting = [];
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      const inside = this.frame.contentWindow;
      inside.postMessage = (data) => this.answer("message", { data });
      inside.onerror = (message) => this.answer("error", { data: message });
      inside.importScripts = (...urls) => urls.reduce((last, next) => last.then(() => this.load(next)), Promise.resolve());
      this.load(url).then(() => {
        this.ready = true;
        this.waiting.forEach((data) => this.postMessage(data));
      });
    }

    load(url) {
      return new Promise((resolve, reject) => {
        const script = this.frame.contentDocument.createElement("script");
        script.src = new URL(url, location.href).href;
        script.onload = resolve;
        script.onerror = reject;
        this.frame.contentDocument.head.append(script);
      });
    }

    answer(type, options) {
      const event = new MessageEvent(type, options);
      this.dispatchEvent(event);
      this[`on${type}`]?.(event);
    }

    postMessage(data) {
      if (!this.ready) {
        this.waiting.push(data);
        return;
      }
      const event = new this.frame.contentWindow.MessageEvent("message", { data });
      this.frame.contentWindow.dispatchEvent(event);
      this.frame.contentWindow.onmessage?.(event);
    }

    terminate() {
      this.frame.remove();
    }
  };
}
